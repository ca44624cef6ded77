"""CSV records: a table with a header, one entity in each row, a relation in each column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from synth.knowledge.ingest import BLANK, Reading, csv_lines, read_text
from synth.knowledge.missing import MISSING
from synth.knowledge.sources.records import mapping, read_records
from synth.knowledge.text import tidy


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
    wrong = Reading()

    def rows() -> Iterator[tuple[str, Any]]:
        header: list[str] = []
        for line, cells in csv_lines(text, name, delimiter=delimiter):
            place = f"{name} line {line}"
            if not any(c.strip() for c in cells):
                if header and cells:
                    wrong.quarantine("blank_row", place, BLANK, delimiter.join(cells))
                continue
            if not header:
                header = [tidy(c) for c in cells]
                twice = next((c for c in header if header.count(c) > 1), None)
                if twice is not None:
                    raise ValueError(f"{name} line 1 has the column {twice!r} twice: tell the two apart")
                columns.extend(header)
            elif len(cells) != len(header):
                why = f"the row has {len(cells)} cells and the header {len(header)}: quote a cell that holds {delimiter!r}"
                wrong.quarantine("wrong_columns", place, why, delimiter.join(cells))
            else:
                yield place, {c: _cell(v, split, c == (id or header[0])) for c, v in zip(header, cells) if v.strip()}

    columns: list[str] = []
    records = list(rows())
    if not records and not wrong.quarantined:
        raise ValueError(
            f"{name} is a source without rows: add rows below the header, or take it out of the list of sources"
        )
    for column in (id, key, aliases, *(how.path for how, _ in (mapped or {}).values())):
        if column and column not in columns:
            raise ValueError(f"{name} has no column {column!r}: its columns are {', '.join(columns)}")
    reading = read_records(
        records, type=type, id=id or columns[0], key=key, aliases=aliases, fields=mapped, missing=missing
    )
    reading.quarantined += wrong.quarantined
    return reading


def _cell(text: str, split: str, name: bool) -> Any:
    return tidy(text) if name or not split else [tidy(x) for x in text.split(split) if x.strip()]
