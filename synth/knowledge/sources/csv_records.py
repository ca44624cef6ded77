"""CSV records: a table with a header, one entity in each row, a relation in each column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from synth.knowledge.ingest import Reading, csv_lines, read_text
from synth.knowledge.missing import MISSING
from synth.knowledge.sources.records import mapping, read_grid


def csv_records(
    path: Path,
    name: str,
    *,
    type: str = "thing",
    id: str = "",
    key: str = "",
    aliases: str = "",
    split: str = "",
    delimiter: str = ",",
    fields: Mapping[str, Any] | None = None,
    missing: Collection[str] = MISSING,
) -> Reading:
    """Read a table. An empty cell states nothing.

    id         column that names the row ("": the first)       key, aliases   columns, as in `json_records`
    split      text between the values of a cell (";"); "" where a cell is one value
    delimiter  between cells
    missing    texts that say that a value is missing (synth/knowledge/missing.py)
    fields     relation -> column, or {path: column, range, by_key, read, ...}; without it every other column is a
               relation

    A row with another number of cells than the header is quarantined. Raises ValueError for a table without rows or with
    a column twice.
    """
    mapped = mapping(name, fields)
    text = read_text(path, name)
    lines = ((f"{name} line {n}", cells) for n, cells in csv_lines(text, name, delimiter=delimiter))
    return read_grid(
        lines,
        name,
        type=type,
        id=id,
        key=key,
        aliases=aliases,
        split=split,
        delimiter=delimiter,
        fields=mapped,
        missing=missing,
    )
