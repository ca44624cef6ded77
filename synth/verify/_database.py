"""A small database in memory, its mutations, and queries that can do nothing but read it within limits.

Tables are {name: {"columns": [[name, "INTEGER" or "TEXT"], ...], "rows": [[value, ...], ...]}}, JSON values.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from synth.types import Problem, Score, Unscorable, seed_for
from synth.verify import TIMEOUT, UNPARSABLE

Tables = Mapping[str, Mapping[str, Any]]
MUTATIONS = 5
MAX_ROWS, MAX_STEPS, MAX_SQL = 1000, 2_000_000, 5000  # rows of a result, virtual machine steps, characters of a query
_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
_FORBIDDEN_FUNCTIONS = {
    "load_extension",
    "random",
    "randomblob",
    "zeroblob",
    "fts3_tokenizer",
    "readfile",
    "writefile",
    "edit",
    "printf",
    "format",
}


class Stopped(ValueError):
    """A query used more steps or rows than it may."""


def mutations(tables: Tables) -> list[Tables]:
    """The database and five others with the same schema, which share with it no more than chance: rows dropped, columns permuted, integers
    moved, rows in another order, rows doubled with one value changed. A query that is right on all of them by luck is rare."""
    rng = Random(seed_for("mutations", {k: [v["columns"], v["rows"]] for k, v in tables.items()}))
    out: list[Tables] = [tables]
    for kind in range(MUTATIONS):
        changed = {}
        for name, table in tables.items():
            rows = [list(r) for r in table["rows"]]
            rng.shuffle(rows)
            if kind in (0, 3):
                rows = rows[: max(1, (2 * len(rows)) // 3)]
            if kind in (1, 3):
                columns = [rng.sample(c, len(c)) for c in zip(*rows, strict=True)]
                rows = [list(r) for r in zip(*columns, strict=True)]
            if kind in (2, 4):
                rows = [[v + rng.randint(-2, 2) if isinstance(v, int) and i else v for i, v in enumerate(r)] for r in rows]
            if kind == 4:
                rows += [[*r[:-1], rng.choice(rows)[-1]] for r in rng.sample(rows, max(1, len(rows) // 2))]
            changed[name] = {"columns": table["columns"], "rows": rows}
        out.append(changed)
    return out


def connect(tables: Tables) -> sqlite3.Connection:
    """A database in memory with the tables, closed to everything but reading queries."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    for name, table in tables.items():
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(f"{c} {kind}" for c, kind in table["columns"])})')
        connection.executemany(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(table["columns"]))})', table["rows"])
    for category, value in (
        (sqlite3.SQLITE_LIMIT_LENGTH, 100_000),
        (sqlite3.SQLITE_LIMIT_SQL_LENGTH, MAX_SQL),
        (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
        (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 20),
        (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
        (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100),
    ):
        connection.setlimit(category, value)
    connection.set_authorizer(_authorise)
    return connection


def _authorise(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in _FORBIDDEN_FUNCTIONS else sqlite3.SQLITE_OK
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def query(connection: sqlite3.Connection, sql: str, *, steps: int = MAX_STEPS) -> list[tuple]:
    """The rows of one reading query. Raises sqlite3.Error for anything else, Stopped beyond the limits, ValueError for a null byte."""
    left = [steps // 1000]

    def tick() -> int:
        left[0] -= 1
        return left[0] < 0

    connection.set_progress_handler(tick, 1000)
    try:
        cursor = connection.execute(sql)
        rows = cursor.fetchmany(MAX_ROWS + 1)
    except sqlite3.OperationalError as e:
        if left[0] < 0:
            raise Stopped(f"over {steps} steps") from e
        raise
    if len(rows) > MAX_ROWS:
        raise Stopped(f"over {MAX_ROWS} rows")
    if cursor.description is None:  # a comment alone: no rows, and not the empty result of a query
        raise sqlite3.OperationalError("reads nothing")
    return rows


def same(a: Sequence[tuple], b: Sequence[tuple], ordered: bool) -> bool:
    """Whether two results are equal, as lists or as multisets; 2.0 is 2, and floats are equal to nine places."""
    one, other = ([tuple(_key(v) for v in row) for row in rows] for rows in (a, b))
    return one == other if ordered else sorted(one) == sorted(other)


def judged(problem: Problem, answer: str, tables: Tables, look: Callable[[list[tuple], list[tuple]], Score | None]) -> Score | None:
    """`look(rows of the reference, rows of the answer)` on all six databases: its first verdict, or that of a query that does not run within
    the limits; None where there is none."""
    if not answer.strip() or len(answer) > MAX_SQL:
        return UNPARSABLE
    for database in mutations(tables):
        connection = connect(database)
        try:
            try:
                gold = query(connection, problem.answer)
            except (sqlite3.Error, sqlite3.Warning, ValueError) as e:
                return Unscorable(reason=f"bad_reference: {e}")
            if not problem.answer.strip():
                return Unscorable(reason="bad_reference: the reference is empty")
            verdict = look(gold, query(connection, answer))
        except Stopped:
            return TIMEOUT
        except (sqlite3.Error, sqlite3.Warning, ValueError):
            return UNPARSABLE
        finally:
            connection.close()
        if verdict is not None:
            return verdict
    return None


def agreed(tables: Tables, queries: Sequence[str], computed: Callable[[Tables], Sequence[tuple]]) -> bool:
    """Whether all queries, and a program that runs none, give the same rows on all six databases; not where a query does not run."""
    for database in mutations(tables):
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
