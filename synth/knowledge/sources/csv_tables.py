"""A folder of CSV files that refer to each other by keys, as a database is exported: read as the tables of a database.

The key of a table is its first column that is called id or ends so ("CustomerID") and differs in every row. Another
table refers to it by a column of the same name, or of its type's ("supplier_id", "SupplierID" for suppliers.csv), of
which nine in ten values are keys there.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from synth.knowledge.ingest import Reading, csv_lines, read_text
from synth.knowledge.sources.sqlite_tables import inferred, quoted, read_tables, snake
from synth.knowledge.words import singular

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?")
_KEYS = 0.9  # share of the values of a column that are keys of a table which it refers to


def csv_tables(path: Path, name: str, *, tables: Mapping[str, Any] | None = None, delimiter: str = ",") -> Reading:
    """Read a folder of CSV files; each is a table. `tables`: as in `sqlite_tables`; `delimiter`: between cells.

    An empty cell is NULL; a row with another number of cells than the header is quarantined. Raises ValueError where
    the folder has no CSV file with rows.
    """
    wrong = Reading()
    with _filled(path, name, delimiter, wrong) as connection:
        reading = read_tables(connection, name, tables)
    reading.quarantined += wrong.quarantined
    return reading


def tables_of(path: Path, name: str, delimiter: str = ",") -> dict[str, dict[str, Any]]:
    """What the tables are about, as far as they say it: the option `tables` to begin with."""
    with _filled(path, name, delimiter, Reading()) as connection:
        return inferred(connection)


class _filled:
    """A database in memory with the tables of a folder."""

    def __init__(self, path: Path, name: str, delimiter: str, wrong: Reading) -> None:
        files = sorted(f for f in path.glob("*.csv") if not f.name.startswith(".")) if path.is_dir() else []
        tables: dict[str, tuple[list[str], list[list[Any]]]] = {}
        for file in files:
            label = f"{name.rstrip('/')}/{file.name}"
            header, rows = _table(file, label, delimiter, wrong)
            if rows:
                tables[file.stem] = header, rows
        if not tables:
            raise ValueError(f"{name} holds no CSV file with rows: name a folder of tables, or the kind of this source")
        keys = {t: k for t, (header, rows) in tables.items() if (k := _key(t, header, rows)) is not None}
        self.connection = sqlite3.connect(":memory:")
        for table, (header, rows) in tables.items():
            own = keys.get(table)
            lines = [f"{quoted(c)}{' PRIMARY KEY' if c == own else ''}" for c in header]
            for i, column in enumerate(header):
                to = None if column == own else _refers(column, {r[i] for r in rows}, table, keys, tables)
                if to is not None:
                    lines.append(f"FOREIGN KEY ({quoted(column)}) REFERENCES {quoted(to)} ({quoted(keys[to])})")
            self.connection.execute(f"CREATE TABLE {quoted(table)} ({', '.join(lines)})")
            marks = ", ".join("?" * len(header))
            self.connection.executemany(f"INSERT INTO {quoted(table)} VALUES ({marks})", rows)

    def __enter__(self) -> sqlite3.Connection:
        return self.connection

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def _table(file: Path, label: str, delimiter: str, wrong: Reading) -> tuple[list[str], list[list[Any]]]:
    """(header, rows); numbers as numbers, so that 1 and "1" of two files are one key."""
    lines = [(n, cells) for n, cells in csv_lines(read_text(file, label), label, delimiter=delimiter) if any(cells)]
    header = [c.strip() for c in lines[0][1]] if lines else []
    if len(set(map(str.lower, header))) != len(header) or not all(header):
        raise ValueError(f"{label} line {lines[0][0]} has a column twice, or one without a name: tell them apart")
    rows = []
    for n, cells in lines[1:]:
        if len(cells) != len(header):
            why = f"the row has {len(cells)} cells and the header {len(header)}: quote a cell that holds {delimiter!r}"
            wrong.quarantine("wrong_columns", f"{label} line {n}", why, delimiter.join(cells))
            continue
        rows.append([_value(c.strip()) for c in cells])
    return header, rows


def _value(text: str) -> Any:
    if not _NUMBER.fullmatch(text):
        return text or None
    return float(text) if "." in text else int(text)


def _key(table: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str | None:
    own = singular(snake(table))
    for i, column in enumerate(header):
        if snake(column) in ("id", f"{own}_id", f"{snake(table)}_id", f"{own}_key") or (i == 0 and _says_key(column)):
            values = [r[i] for r in rows]
            if None not in values and len(set(values)) == len(values):
                return column
    return None


def _says_key(column: str) -> bool:
    return re.search(r"(?:_id|_key|_code|_no)$", snake(column)) is not None


def _refers(
    column: str, values: set[Any], table: str, keys: Mapping[str, str], tables: Mapping[str, tuple[list[str], list]]
) -> str | None:
    """The table whose keys a column holds."""
    name, values = snake(column), values - {None}
    for other, key in keys.items():
        own = singular(snake(other))
        same = other != table and snake(key) == name and name != "id"
        named = name in (f"{own}_id", f"{own}_key", own) or name.endswith(f"_{own}_id")
        if (same or named or (other == table and name in ("reports_to", "parent_id", "manager_id"))) and values:
            at = tables[other][0].index(key)
            known = {r[at] for r in tables[other][1]}
            if len(values & known) >= _KEYS * len(values):
                return other
    return None
