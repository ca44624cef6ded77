"""Tables of an SQLite database, or of a script that creates one: rows become entities, columns and foreign keys become
relations.

The meaning of a table is inferred (`inferred`) and can be stated instead (`tables`), in the same form:

    Track:         {type: track, name: [Name], facts: {album: AlbumId, genre: GenreId, milliseconds: Milliseconds}}
    PlaylistTrack: {link: {relation: playlist_track, subject: PlaylistId, object: TrackId}}

`espalier kb build` writes the inferred form into schema.yaml, for the user to edit and read again.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from synth.knowledge.ingest import Reading, Row, read_text
from synth.knowledge.naming import named
from synth.knowledge.sources.records import Lacks, scalar
from synth.knowledge.text import tidy
from synth.knowledge.words import is_person, article, deed_of, relation_name, role, singular

_NAMES = (("name",), ("full_name",), ("first_name", "last_name"), ("firstname", "lastname"), ("title",), ("label",))
# steps of SQLite's virtual machine for one script; a script that needs more is not a set of tables
_STEPS = 500_000_000
_DENIED = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_VTABLE}


def sqlite_tables(path: Path, name: str, *, tables: Mapping[str, Any] | None = None) -> Reading:
    """Read a database (.sqlite, .db) or a script (.sql). `tables`: table -> its meaning; tables that are not named are
    skipped.

    The columns `name` give the name of a row; if two rows of a table share a name, the target of their first foreign
    key is added in brackets, and after that their key. NULL states nothing; a reference to no row and a value that is
    no text or number are quarantined. The values of a column decide its type (`synth.knowledge.columns`).
    Raises ValueError for a file that is no database or script, for a wrong entry of `tables`, and where there is no
    row.
    """
    with _open(path, name) as connection:
        return read_tables(connection, name, tables)


def read_tables(connection: sqlite3.Connection, name: str, tables: Mapping[str, Any] | None) -> Reading:
    """The reading of the tables of a database."""
    known = inferred(connection)
    wanted = dict(tables) if tables is not None else known
    for table, entry in wanted.items():
        _check(connection, name, table, entry, known)
    reading = Reading(guess=True)
    names = {t: _names(connection, t, e) for t, e in wanted.items() if "type" in e}
    for t in list(names):  # a second time, because the names that distinguish rows may come from a later table
        names[t] = _tell_apart(connection, t, wanted[t], names)
        reading.listed.setdefault(wanted[t]["type"], set()).update(names[t].values())
    for table, entry in wanted.items():
        (_link if "link" in entry else _facts)(connection, table, entry, wanted, names, reading, name)
    if not reading.rows:
        raise ValueError(f"{name} holds no row that states anything: add rows, or take it out of the list of sources")
    return reading


def tables_of(path: Path, name: str) -> dict[str, dict[str, Any]]:
    """The meaning of the tables, as far as the database states it: an initial value for the option `tables`."""
    with _open(path, name) as connection:
        return inferred(connection)


class _open:
    """A read-only connection to the database, or to what the script makes in memory."""

    def __init__(self, path: Path, name: str) -> None:
        try:
            if path.suffix.lower() == ".sql":
                self.connection = sqlite3.connect(":memory:")
                self._guard()
                self.connection.executescript(read_text(path, name))
            else:
                self.connection = sqlite3.connect(f"file:{quote(str(path.resolve()))}?mode=ro", uri=True)
                self._guard()
            self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            raise ValueError(
                f"{name} is no SQLite database or script ({error}): fix it, or the path of this source"
            ) from error
        self.connection.text_factory = lambda data: data.decode("utf-8", "replace")

    def _guard(self) -> None:
        """A script may only create tables: no access to other files, no extensions, and limited run time."""
        steps = Counter()

        def count() -> int:
            steps["n"] += 100_000
            return steps["n"] > _STEPS

        self.connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK
        )
        self.connection.set_progress_handler(count, 100_000)

    def __enter__(self) -> sqlite3.Connection:
        return self.connection

    def __exit__(self, *_: object) -> None:
        self.connection.close()


# ---- the schema


def snake(name: str) -> str:
    """ "InvoiceLineId" -> "invoice_line_id"."""
    return relation_name(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str, int]]:
    """(name, declared type, place in the primary key or 0)."""
    return [(r[1], (r[2] or "").upper(), r[5]) for r in connection.execute(f"PRAGMA table_info({quoted(table)})")]


def references(connection: sqlite3.Connection, table: str) -> dict[str, tuple[str, str]]:
    """Column -> (table, column) of the foreign keys of one column. Where no column is named, the primary key is
    meant."""
    rows = connection.execute(f"PRAGMA foreign_key_list({quoted(table)})").fetchall()
    whole = Counter(r[0] for r in rows)
    return {r[3]: (r[2], r[4] or _key(connection, r[2])) for r in rows if whole[r[0]] == 1}


def _key(connection: sqlite3.Connection, table: str) -> str:
    """The column that identifies a row: the primary key where it is one column, else the row id."""
    key = [c for c, _, place in _columns(connection, table) if place]
    return key[0] if len(key) == 1 else "rowid"


def inferred(connection: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    """Table -> {type, name, facts} or {link: ...}, as far as the database says it.

    A table is a link where it has two foreign keys and nothing else that is no number (an order's lines, with price and
    quantity), and no pair of them twice. What names a row is a column that says so, or one that says it of the table
    ("CompanyName" of "Customers"; `synth.knowledge.naming`)."""
    listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    tables = [r[0] for r in connection.execute(listed)]
    used: Counter[str] = Counter()
    out: dict[str, dict[str, Any]] = {}
    for table in tables:
        columns, refers = _columns(connection, table), references(connection, table)
        rest = [c for c, _, place in columns if c not in refers and not place]
        ends = [c for c, _, _ in columns if c in refers]
        if len(refers) == 2 and (not rest or _lines(connection, table, ends, rest)):
            out[table] = {"link": {"relation": snake(table), "subject": ends[0], "object": ends[1]}}
            continue
        type_ = singular(snake(table))
        by_name = {snake(c): c for c in rest}
        named_ = next(([by_name[n] for n in names] for names in _NAMES if all(n in by_name for n in names)), [])
        if not named_ and rest:
            some = f"SELECT {', '.join(map(quoted, rest))} FROM {quoted(table)} LIMIT 2000"
            named_ = named([dict(zip(rest, row)) for row in connection.execute(some)], type_)[:1]
        facts = {}
        for column, kind, place in columns:
            if column in named_ or (place and column not in refers) or "BLOB" in kind:
                continue
            relation = snake(column)
            facts[relation.removesuffix("_id") if column in refers else relation] = column
        out[table] = {"type": type_, "name": named_, "facts": facts}
        used.update(list(facts))
    for entry in out.values():  # one relation has one domain
        if "facts" in entry:
            entry["facts"] = {f"{entry['type']}_{r}" if used[r] > 1 else r: c for r, c in entry["facts"].items()}
    return out


def _lines(connection: sqlite3.Connection, table: str, ends: list[str], rest: list[str]) -> bool:
    """Whether rows are lines of something: besides two references only numbers, and each pair once."""
    numbers = " + ".join(f"(typeof({quoted(c)}) IN ('text', 'blob'))" for c in rest)
    pair = " || '/' || ".join(map(quoted, ends))
    counts = f"SELECT sum({numbers}), count(*), count(DISTINCT {pair}) FROM {quoted(table)}"
    texts, rows, pairs = connection.execute(counts).fetchone()
    return bool(rows) and not texts and rows == pairs


def _check(connection: sqlite3.Connection, name: str, table: str, entry: Any, known: Mapping[str, Any]) -> None:
    if table not in known:
        raise Lacks(f"{name} has no table {table!r}: its tables are {', '.join(known)}", ("tables", table))
    keys = set(entry) if isinstance(entry, Mapping) else set()
    if not (keys == {"link"} or {"type"} <= keys <= {"type", "name", "facts"}):
        form = "{type, name, facts} or {link: {relation, subject, object}}"
        raise ValueError(f"the table {table!r} of {name} must be {form}: fix its entry")
    link = entry.get("link", {})
    if "link" in entry and set(link) != {"relation", "subject", "object"}:
        raise ValueError(
            f"the link of the table {table!r} of {name} must say relation, subject and object: fix its entry"
        )
    columns = {c for c, _, _ in _columns(connection, table)}
    for option, column in (
        *((("name", i), column) for i, column in enumerate(entry.get("name", []))),
        *((("facts", relation), column) for relation, column in entry.get("facts", {}).items()),
        *(((), link.get(k)) for k in ("subject", "object") if link),  # without it there is no link
    ):
        if column not in columns:
            raise Lacks(
                f"the table {table!r} of {name} has no column {column!r}: its columns are {', '.join(sorted(columns))}",
                ("tables", table, *option),
            )
    refers = references(connection, table)
    for side in ("subject", "object"):
        if link and link[side] not in refers:
            raise ValueError(
                f"the column {link[side]!r} of the table {table!r} of {name} refers to no other table: a link joins two of them"
            )


# ---- rows


def _rows(connection: sqlite3.Connection, table: str, columns: list[str]) -> list[tuple[Any, ...]]:
    key = _key(connection, table)
    selected = ", ".join(f"{quoted(c)}" if c != "rowid" else "rowid" for c in (key, *columns))
    return connection.execute(f"SELECT {selected} FROM {quoted(table)} ORDER BY 1").fetchall()


def _names(connection: sqlite3.Connection, table: str, entry: Mapping[str, Any]) -> dict[Any, str]:
    """Key -> name of every row of a table; rows without a name are called by their type and key."""
    out: dict[Any, str] = {}
    for key, *cells in _rows(connection, table, list(entry.get("name", []))):
        name = tidy(" ".join(scalar(c) for c in cells if isinstance(c, str | int | float)))
        out[key] = name or f"{entry['type'].replace('_', ' ')} {key}"
    return out


def _tell_apart(
    connection: sqlite3.Connection, table: str, entry: Mapping[str, Any], names: Mapping[str, Mapping[Any, str]]
) -> dict[Any, str]:
    """The names of a table's rows, made distinct."""
    mine, refers = names[table], references(connection, table)
    first = next((c for c in entry.get("facts", {}).values() if c in refers and refers[c][0] in names), None)
    shared = Counter(mine.values())
    out = dict(mine)
    if first is not None and max(shared.values(), default=0) > 1:
        parent = names[refers[first][0]]
        for key, other in _rows(connection, table, [first]):
            if shared[mine[key]] > 1 and other in parent:
                out[key] = f"{mine[key]} ({parent[other]})"
    again = Counter(out.values())
    return {key: text if again[text] == 1 else f"{text} #{key}" for key, text in out.items()}


def _facts(
    connection: sqlite3.Connection,
    table: str,
    entry: Mapping[str, Any],
    wanted: Mapping[str, Any],
    names: Mapping[str, Mapping[Any, str]],
    reading: Reading,
    name: str,
) -> None:
    refers = {c: t for c, (t, _) in references(connection, table).items() if t in names}
    facts = dict(entry.get("facts", {}))
    for relation, column in facts.items():
        reading.schema[relation] = {"domain": entry["type"], "functional": True}
        reading.columns[relation] = column
        if column in refers:
            range_ = wanted[refers[column]]["type"]
            reading.schema[relation] |= {"range": range_, **role(column, entry["type"], range_)}
    for key, *cells in _rows(connection, table, list(facts.values())):
        subject, place = names[table][key], f"{name} {table} {key}"
        for (relation, column), cell in zip(facts.items(), cells):
            if cell is None or cell == "":
                continue
            span = f"{table}.{column} = {cell!r}" if not isinstance(cell, str) else f"{table}.{column} = {cell}"
            row = {
                "subject": subject,
                "relation": relation,
                "subject_type": entry["type"],
                "source": place,
                "span": span[:500],
            }
            if column in refers:
                _refer(reading, names[refers[column]], cell, row)
            elif isinstance(cell, bytes):
                reading.quarantine(
                    "not_text", place, f"{table}.{column} holds bytes: leave the column out of `facts`", span[:200]
                )
            else:
                text = tidy(scalar(cell).removesuffix(" 00:00:00"))
                reading.rows.append(Row(object=text, **row))


def _link(
    connection: sqlite3.Connection,
    table: str,
    entry: Mapping[str, Any],
    wanted: Mapping[str, Any],
    names: Mapping[str, Mapping[Any, str]],
    reading: Reading,
    name: str,
) -> None:
    link, refers = entry["link"], references(connection, table)
    ends = [refers[link[side]][0] for side in ("subject", "object")]
    missing = next((t for t in ends if t not in names), None)
    if missing is not None:
        raise ValueError(f"the table {table!r} of {name} links {missing!r}, which has no type: state one for it")
    subject, object = (wanted[t]["type"] for t in ends)
    label = object.replace("_", " ")
    reading.schema[link["relation"]] = {
        "domain": subject,
        "range": object,
        "label": label,
        **_includes(subject, object, deed_of(table)),
    }
    linked = _rows(connection, table, [link["subject"], link["object"]])
    without = names[ends[0]].keys() - {x for _, x, _ in linked}
    reading.none[link["relation"]] = {names[ends[0]][x] for x in without}
    for key, x, y in linked:
        place, span = f"{name} {table} {key}", f"{table} = {x!r}, {y!r}"
        row = {"relation": link["relation"], "subject_type": subject, "source": place, "span": span}
        if x not in names[ends[0]]:
            why = f"it refers to {x!r}, which is no key of {ends[0]}: add that row, or fix the reference"
            reading.quarantine("unknown_reference", place, why, span)
        else:
            _refer(reading, names[ends[1]], y, {"subject": names[ends[0]][x], **row})


def _includes(subject: str, object: str, deed: str) -> dict[str, str]:
    """The words of a link. deed: what people did with its objects, as its table says, or ""."""
    if is_person(object):
        return {"passage": "{x} has the {label} {y}."}
    if is_person(subject) and deed:
        return {
            "passage": f"{{x}} {deed} the {{label}} {{y}}.",
            "forward": f"{article('{label}', object)} that was {deed} by {{x}}",
            "inverse": f"{article('{domain}', subject)} who {deed} {{y}}",
        }
    if is_person(subject):  # a member includes no books
        return {
            "passage": "{x} has the {label} {y}.",
            "forward": f"{article('{label}', object)} that {{x}} has",
            "inverse": f"{article('{domain}', subject)} who has {{y}}",
        }
    return {
        "passage": "{x} includes the {label} {y}.",
        "forward": f"{article('{label}', object)} that {{x}} includes",
        "inverse": f"{article('{domain}', subject)} that includes {{y}}",
    }


def _refer(reading: Reading, parent: Mapping[Any, str], cell: Any, row: dict[str, str]) -> None:
    if cell in parent:
        reading.rows.append(Row(object=parent[cell], object_type="", **row))
    else:
        why = f"it refers to {cell!r}, which is the key of no row: add that row, or fix the reference"
        reading.quarantine("unknown_reference", row["source"], why, row["span"])
