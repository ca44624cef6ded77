"""A small database in memory, its mutations, and read-only queries within limits.

Tables are {name: {"columns": [[name, "INTEGER" or "TEXT"], ...], "rows": [[value, ...], ...]}}, JSON values.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import chain
from random import Random
from typing import Any

from synth.types import Problem, Score, Unscorable, seed_for
from synth.verify import TIMEOUT, UNPARSABLE

Tables = Mapping[str, Mapping[str, Any]]
MUTATIONS = 5
MAX_ROWS, MAX_STEPS, MAX_SQL = 1000, 2_000_000, 5000  # rows of a result, virtual machine steps, characters of a query
MAX_BYTES = 4_000_000  # of a result, counted row by row while it is fetched
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {
    *("load_extension", "fts3_tokenizer", "readfile", "writefile", "edit", "sqlite_log"),  # leave the database
    *("zeroblob", "printf", "format"),  # allocate
    *("random", "randomblob", "current_date", "current_time", "current_timestamp"),  # vary from run to run
    *("changes", "total_changes", "last_insert_rowid"),
    *("sqlite_version", "sqlite_source_id", "sqlite_compileoption_get", "sqlite_compileoption_used"),  # and by machine
}
_DATES = ("date", "time", "datetime", "julianday", "unixepoch", "strftime", "timediff")
_VARIES = {"now", "localtime", "utc", "subsec", "subsecond"}  # words of dates that ask the clock or the time zone


_COMPARISON = re.compile(
    r"(?:\b(\w+)\.)?\b(\w+)\s*(<=|>=|<>|[=<>])\s*(?:'((?:[^']|'')*)'|(-?[0-9]{1,15})(?![\w.]))", re.ASCII
)
# of the databases drawn for a query: rows of each table, how often a value satisfies it, whether numbers are all equal
DRAWN = ((14, 0.5, False), (12, 0.7, True), (120, 0.9, False), (25, 0.6, False), (30, 0.2, False), (40, 0.5, False))


class Stopped(ValueError):
    """A query used more steps or rows than it may."""


def mutations(tables: Tables) -> list[Tables]:
    """The database and five others with the same schema, which agree with it only by chance: rows dropped, columns
    permuted, integers moved, rows in another order, rows doubled with one value changed (a whole number that tells the
    rows apart stays one). A query that is right on all of them by luck is rare."""
    rng = Random(seed_for("mutations", {k: [v["columns"], v["rows"]] for k, v in tables.items()}))
    out: list[Tables] = [tables]
    for kind in range(MUTATIONS):
        changed = {}
        for name, table in tables.items():
            rows = [list(r) for r in table["rows"]]
            if not rows:
                changed[name] = table
                continue
            rng.shuffle(rows)
            if kind in (0, 3):
                rows = rows[: max(1, (2 * len(rows)) // 3)]
            if kind in (1, 3):
                columns = [rng.sample(c, len(c)) for c in zip(*rows, strict=True)]
                rows = [list(r) for r in zip(*columns, strict=True)]
            if kind in (2, 4):
                rows = [
                    [v + rng.randint(-2, 2) if isinstance(v, int) and i else v for i, v in enumerate(r)] for r in rows
                ]
            if kind == 4:
                more = [[*r[:-1], rng.choice(rows)[-1]] for r in rng.sample(rows, max(1, len(rows) // 2))]
                if _has_key(table):
                    top = max(r[0] for r in table["rows"]) + 100  # which no moved reference reaches
                    more = [[top + i, *r[1:]] for i, r in enumerate(more, 1)]
                rows += more
            changed[name] = {"columns": table["columns"], "rows": rows}
        out.append(changed)
    return out


def drawn(tables: Tables, reference: str) -> Iterator[Tables]:
    """Databases with the same schema in which a query that is nearly the reference gives another result: what the
    reference compares a column with stands in it, and so do its neighbours; more rows satisfy the query than a LIMIT
    written from the shown ones lets through; names repeat; and numbers are all equal, so that none is above an average.

    Kept as they are: the whole number that tells the rows of a table apart, what refers to it, and, where the reference
    groups its rows, names that tell them apart too: whether a group is an album or its title is not to be decided here.
    """
    compared = _compared(tables, reference)
    for n, (rows, satisfied, flat) in enumerate(DRAWN):
        rng = Random(seed_for("drawn", {k: [v["columns"], v["rows"]] for k, v in tables.items()}, reference, n))
        yield _draw(rng, tables, compared, rows, satisfied, flat, repeats="group by" not in reference.lower())


def _has_key(table: Mapping[str, Any]) -> bool:
    """Whether the first column holds whole numbers of which none occurs twice."""
    keys = [r[0] for r in table["rows"]]
    return len(table["columns"]) > 1 and len(set(keys)) == len(keys) > 0 and all(type(k) is int for k in keys)


def _compared(tables: Tables, reference: str) -> dict[tuple[str, str], list[tuple[str, str | int]]]:
    """(table, column) -> the (sign, value) that the reference compares it with; of every table with such a column where
    the query does not name one."""
    out: dict[tuple[str, str], list[tuple[str, str | int]]] = {}
    for owner, column, sign, text, digits in _COMPARISON.findall(reference[:MAX_SQL]):
        value = int(digits) if digits else text.replace("''", "'")
        names = [owner] if owner in tables else list(tables)
        for name in names:
            if any(c == column and (kind == "INTEGER") == bool(digits) for c, kind in tables[name]["columns"]):
                out.setdefault((name, column), []).append((sign, value))
    return out


def _satisfying(rng: Random, sign: str, value: str | int) -> str | int:
    if isinstance(value, str) or sign == "=":
        return value
    return value + (rng.randint(1, 5) if sign[0] == ">" else -rng.randint(1, 5))


def _near(rng: Random, value: str | int) -> str | int:
    if isinstance(value, int):
        return value + rng.choice([-12, -5, -1, 0, 1, 5])
    return rng.choice([value, f"{value}s", f"New {value}"])


def _draw(
    rng: Random,
    tables: Tables,
    compared: Mapping[tuple[str, str], Sequence[tuple[str, str | int]]],
    rows: int,
    satisfied: float,
    flat: bool,
    repeats: bool,
) -> Tables:
    """One database. `rows`: of each table; `satisfied`: how often a value is one that the query lets through."""
    keys = {name: {r[0] for r in t["rows"]} for name, t in tables.items() if _has_key(t)}
    refers = {
        (name, i): next((o for o in keys if o == c), None)
        or next((o for o in keys if o != name and {r[i] for r in t["rows"]} <= keys[o]), None)
        for name, t in tables.items()
        for i, (c, kind) in enumerate(t["columns"])
        if kind == "INTEGER" and (i or name not in keys)
    }
    filled: dict[str, list[list]] = {}
    wanted: dict[str, list[int]] = {}  # keys of the rows that the query lets through
    for name in _order(tables, refers):
        columns = tables[name]["columns"]
        base = tables[name]["rows"] or [[0 if kind == "INTEGER" else "x" for _, kind in columns]]
        texts = [i for i in range(len(columns)) if all(isinstance(r[i], str) for r in base)]
        unique = {i for i in texts if len({r[i] for r in base}) == len(base)}
        values: list[list] = []
        for i, (column, _) in enumerate(columns):
            against, other = compared.get((name, column), ()), refers.get((name, i))
            own: list[Any] = [r[i] for r in base]
            if i == 0 and name in keys:
                column_values = (own + [max(own) + n for n in range(1, rows + 1)])[:rows]
            elif other in filled:
                every = rng.choices([r[0] for r in filled[other]], k=rows)
                good = rng.choices(wanted[other], k=rows) if wanted[other] else every
                column_values = [a if rng.random() < satisfied else b for a, b in zip(good, every, strict=True)]
            elif i in unique:
                column_values = [
                    own[n] if n < len(own) and not against else f"{own[n % len(own)]} {n}" for n in range(rows)
                ]
                if against:
                    column_values[0] = against[0][1]
                elif repeats:
                    column_values = [rng.choice(column_values) if rng.random() < 0.3 else v for v in column_values]
            elif flat and i not in texts:
                column_values = [_satisfying(rng, *against[0]) if against else rng.choice(own)] * rows
            elif against:
                good = rng.choices([_satisfying(rng, *rng.choice(against)) for _ in range(12)], k=rows)
                near = rng.choices([_near(rng, rng.choice(against)[1]) for _ in range(18)], k=rows)
                column_values = [a if rng.random() < satisfied else b for a, b in zip(good, near, strict=True)]
            else:
                column_values = _moved(rng, own, rows)
            values.append(column_values)
        out = [list(row) for row in zip(*values, strict=True)]
        filled[name] = out
        tests = [(i, compared[name, c]) for i, (c, _) in enumerate(columns) if (name, c) in compared]
        if name in keys:
            near = [(i, set(wanted[o])) for (n, i), o in refers.items() if n == name and o in wanted and o != name]
            kept = [r for r in out if all(any(_holds(r[i], *t) for t in of) for i, of in tests)]
            wanted[name] = [r[0] for r in kept if all(r[i] in keys_of for i, keys_of in near)]
    return {name: {"columns": tables[name]["columns"], "rows": filled[name]} for name in tables}


def _moved(rng: Random, own: Sequence[Any], rows: int) -> list[Any]:
    """Values beside those of a column: in large databases a text has a number behind it, so that groups are many."""
    steps = rng.choices(range(-3, 4), k=rows)
    number = rng.choices(range(rows), k=rows)
    return [
        v + step if type(v) is int else f"{v}{n}" if isinstance(v, str) and rows >= 40 else v
        for v, step, n in zip(rng.choices(own, k=rows), steps, number, strict=True)
    ]


def _order(tables: Tables, refers: Mapping[tuple[str, int], str | None]) -> list[str]:
    """The tables, one that others refer to before them."""
    out: list[str] = []
    left = sorted(tables)
    while left:
        ready = [t for t in left if all(o in (None, t) or o in out for (n, _), o in refers.items() if n == t)]
        out += ready or left[:1]
        left = [t for t in left if t not in out]
    return out


def _holds(value: Any, sign: str, wanted: str | int) -> bool:
    if type(value) is not type(wanted):
        return False
    return value > wanted if sign[0] == ">" else value < wanted if sign[0] == "<" else value == wanted  # type: ignore[operator]


def connect(tables: Tables) -> sqlite3.Connection:
    """A database in memory with the tables, closed to everything but reading queries."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("PRAGMA temp_store = MEMORY")  # a sort is counted as memory, and leaves nothing on the disk
    connection.execute("BEGIN")  # or every row is a transaction of its own
    for name, table in tables.items():
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(f"{c} {kind}" for c, kind in table["columns"])})')
        connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(table["columns"]))})', table["rows"])
    connection.execute("COMMIT")
    for category, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, 100_000),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_SQL),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    ):
        connection.setlimit(category, value)
    for name in _DATES:
        connection.create_function(name, -1, partial(_date, name), deterministic=True)
    connection.set_authorizer(_authorise)
    return connection


@cache
def _dates() -> sqlite3.Connection:
    """A database without tables, whose date functions are SQLite's own."""
    return sqlite3.connect(":memory:", check_same_thread=False)


def _date(name: str, *arguments: Any) -> Any:
    """A date function of SQLite on dates that the query names itself. Raises ValueError for one that asks the clock or
    the time zone: without a date, or with one of the words that do."""
    read = arguments[1:] if name == "strftime" else arguments
    words = {
        (v.decode("utf-8", "replace") if isinstance(v, bytes) else v).partition("\0")[0].strip().lower()
        for v in read
        if isinstance(v, str | bytes)
    }
    if not read or words & _VARIES:
        raise ValueError(f"{name} of the present is not allowed")
    return _dates().execute(f"SELECT {name}({', '.join('?' * len(arguments))})", arguments).fetchone()[0]


def _authorise(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def query(connection: sqlite3.Connection, sql: str, *, steps: int = MAX_STEPS) -> list[tuple]:
    """The rows of one reading query. Raises sqlite3.Error for anything else, Stopped beyond the limits, ValueError for
    a null byte."""
    left, rows, size = [steps // 1000], [], 0

    def tick() -> int:
        left[0] -= 1
        return left[0] < 0

    connection.set_progress_handler(tick, 1000)
    try:
        cursor = connection.execute(sql)
        for row in cursor:
            rows.append(row)
            size += sum(len(v) if isinstance(v, str | bytes) else 8 for v in row)
            if len(rows) > MAX_ROWS or size > MAX_BYTES:
                break
    except sqlite3.OperationalError as e:
        if left[0] < 0:
            raise Stopped(f"over {steps} steps") from e
        if "user-defined function" in str(e):  # only the functions of dates are ours
            raise sqlite3.OperationalError("dates of the present are not allowed: name a date and no time zone") from e
        raise
    if len(rows) > MAX_ROWS:
        raise Stopped(f"over {MAX_ROWS} rows")
    if size > MAX_BYTES:
        raise Stopped(f"over {MAX_BYTES} bytes")
    if cursor.description is None:  # a comment alone: no rows, and not the empty result of a query
        raise sqlite3.OperationalError("reads nothing")
    return rows


def shown(tables: Tables, sql: str, *, steps: int, length: int, rows: int) -> dict[str, Any]:
    """What a person or a model is shown of a query: {"lines": texts of the first `rows` rows, "total": how many there
    are}, or {"error": why there are none}. `length`: characters of a value while the query runs."""
    connection = connect(tables)
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, length)
        result = query(connection, sql, steps=steps)
    except (sqlite3.Error, sqlite3.Warning, ValueError) as e:
        return {"error": str(e)}
    finally:
        connection.close()
    lines = [" | ".join("NULL" if v is None else str(v) for v in row) for row in result[:rows]]
    return {"lines": lines, "total": len(result)}


def same(a: Sequence[tuple], b: Sequence[tuple], ordered: bool) -> bool:
    """Whether two results are equal, as lists or as multisets; 2.0 is 2, and floats are equal to nine places."""
    one, other = ([tuple(_key(v) for v in row) for row in rows] for rows in (a, b))
    return one == other if ordered else sorted(one) == sorted(other)


class _Trial:
    """The databases on which a reference is compared, with its rows on each, made as they are asked for."""

    def __init__(self, tables: Tables, reference: str) -> None:
        self.reference, self.ready = reference, []
        self.rest = (database for variant in (mutations(tables), drawn(tables, reference)) for database in variant)

    def __iter__(self) -> Iterator[tuple[sqlite3.Connection, list[tuple]]]:
        """(database, rows of the reference). Raises what a query raises where the reference is none."""
        at = 0
        while at < len(self.ready) or self._more():
            yield self.ready[at]
            at += 1

    def _more(self) -> bool:
        database = next(self.rest, None)
        if database is None:
            return False
        connection = connect(database)
        self.ready.append((connection, query(connection, self.reference)))
        return True


@lru_cache(maxsize=16)
def _trial(tables: str, reference: str) -> _Trial:
    """The answers of a group are compared on the same databases: they are made once."""
    return _Trial(json.loads(tables), reference)


def judged(
    problem: Problem, answer: str, tables: Tables, look: Callable[[list[tuple], list[tuple]], Score | None]
) -> Score | None:
    """`look(rows of the reference, rows of the answer)` on all twelve databases: its first verdict, or that of a query
    that does not run within the limits; None where there is none."""
    if not answer.strip() or len(answer) > MAX_SQL:
        return UNPARSABLE
    if not problem.answer.strip():
        return Unscorable(reason="bad_reference: the reference is empty")
    written = json.dumps(tables)
    databases = iter(_trial(written, problem.answer))
    while True:
        try:
            connection, gold = next(databases)
        except StopIteration:
            return None
        except (sqlite3.Error, sqlite3.Warning, ValueError) as e:
            _trial.cache_clear()
            return Unscorable(reason=f"bad_reference: {e}")
        try:
            verdict = look(gold, query(connection, answer))
        except Stopped:
            return TIMEOUT
        except (sqlite3.Error, sqlite3.Warning, ValueError):
            return UNPARSABLE
        if verdict is not None:
            return verdict


def agreed(tables: Tables, queries: Sequence[str], computed: Callable[[Tables], Sequence[tuple]]) -> bool:
    """Whether all queries, and a program that runs none, give the same rows on the twelve databases on which answers to
    the first query are scored (`judged`); not where a query does not run."""
    for database in chain(mutations(tables), drawn(tables, queries[0])):
        connection = connect(database)
        try:
            first, *others = (query(connection, q) for q in queries)
            if not (all(same(first, rows, False) for rows in others) and same(first, computed(database), False)):
                return False
        except sqlite3.Error:
            return False
        finally:
            connection.close()
    return True


def _key(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    if isinstance(value, int | float):
        return (1, round(float(value), 9))
    return (2, value if isinstance(value, str) else repr(value))
