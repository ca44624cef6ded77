"""CSV triples: a file, or a folder of files, with the columns subject,relation,object."""

from __future__ import annotations

from pathlib import Path

from synth.knowledge.ingest import BLANK, Reading, Row, read_schema, read_table
from synth.knowledge.text import tidy

_BESIDE = ("relations.csv", "aliases.csv")


def csv_triples(path: Path, name: str, *, relations: str = "") -> Reading:
    """Read triples; two further columns, subject_type and object_type, may state types.

    A schema `relations.csv` beside the files (or the file named by `relations`, relative to them) closes the list of
    relations; without one everything is inferred. `aliases.csv` (type,name,alias) beside them gives entities further
    names. Raises ValueError as `read_table`.
    """
    folder = path if path.is_dir() else path.parent
    files = sorted(p for p in path.glob("*.csv") if p.name not in _BESIDE) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{name} holds no file *.csv with triples: add one with the header subject,relation,object")
    reading = Reading()
    schema = folder / (relations or "relations.csv")
    if relations or schema.exists():
        reading.schema, reading.closed = read_schema(schema, _label(schema, path, name)), True
    for file in files:
        label = _label(file, path, name)
        for line, span, cells in read_table(
            file, label, ["subject", "relation", "object"], ["subject_type", "object_type"], blank=True
        ):
            if not span.strip(" ,\t"):
                reading.quarantine("blank_row", f"{label} line {line}", BLANK, span)
            elif cells is None:
                reading.quarantine(
                    "wrong_columns",
                    f"{label} line {line}",
                    "the row has another number of cells than the header: quote a cell that holds a comma",
                    span,
                )
            else:
                reading.rows.append(Row(**cells, source=f"{label} line {line}", span=span))
    aliases = folder / "aliases.csv"
    if path.is_dir() and aliases.exists():
        for line, span, cells in read_table(aliases, _label(aliases, path, name), ["type", "name", "alias"]):
            if cells is None or not all(cells.values()):
                raise ValueError(
                    f"{_label(aliases, path, name)} line {line} lacks a cell ({span}): give type, name and alias"
                )
            key = cells["type"], tidy(cells["name"])
            reading.aliases[key] = reading.aliases.get(key, ()) + (cells["alias"],)
    return reading


def _label(file: Path, path: Path, name: str) -> str:
    """How messages and sources name a file: below the name of the source, so that it is the same on every machine."""
    return (
        f"{name.rstrip('/')}/{file.name}"
        if path.is_dir()
        else name
        if file == path
        else f"{Path(name).parent / file.name}"
    )
