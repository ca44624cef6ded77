"""Queries that are nearly right, and queries that are right in other words, for the references of the families that ask
for SQL; and random databases on which the first show that they are wrong.

A mutant counts where it differs from its reference on one of `CHECKS` databases that are drawn here, by another generator
than the scorer's own (`synth.verify._database.drawn`): same tables and columns, keys that occur once and references that
hold, between none and eighty rows, values of the problem and those beside what the query compares with.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from random import Random
from typing import Any

from synth.families.music_shop_sql import music_shop_sql
from synth.families.text_to_sql import text_to_sql
from synth.types import Problem, seed_for
from synth.verify._database import connect, query, same

CHECKS = 60
_COLUMNS = {"age": "salary", "salary": "age", "price": "amount", "amount": "price", "goals": "fouls", "fouls": "goals"}
_COLUMNS |= {"team": "city", "city": "team", "kind": "shelf", "shelf": "kind", "club": "place", "place": "club"}


def problems(count: int) -> Iterator[Problem]:
    """`count` of each level of both families."""
    for family in (text_to_sql, music_shop_sql):
        for level in range(1, 5):
            items = (family(23, "train", i, levels=[level]) for i in range(4 * count))
            yield from [p for p in items if isinstance(p, Problem)][:count]


def mutants(sql: str) -> dict[str, str]:
    """name -> a query with one change; whether it differs is not said."""
    out = {"distinct": sql.replace("SELECT ", "SELECT DISTINCT ", 1)}
    out |= {f"limit {n}": f"{sql} LIMIT {n}" for n in (1, 5, 10, 20, 50, 100)}
    out["offset"] = f"{sql} LIMIT -1 OFFSET 1"
    for changed in (_comparisons, _conditions, _aggregates, _columns, _joins, _groups):
        out |= changed(sql)
    return {name: text for name, text in out.items() if text != sql}


def _comparisons(sql: str) -> dict[str, str]:
    """Another sign, number or text in one comparison."""
    out: dict[str, str] = {}
    for i, match in enumerate(re.finditer(r" ([<>]) ", sql)):
        put = lambda sign, match=match: f"{sql[: match.start()]} {sign} {sql[match.end() :]}"  # noqa: E731
        out |= {f"{i} with equal": put(match[1] + "="), f"{i} turned": put("<" if match[1] == ">" else ">")}
        out |= {f"{i} equal": put("="), f"{i} unequal": put("<>")}
    for i, match in enumerate(re.finditer(r"(?<=[<>] )\d+", sql)):
        for step in (-1, 1, 5):
            out[f"{i} number {step:+}"] = f"{sql[: match.start()]}{int(match[0]) + step}{sql[match.end() :]}"
    for i, match in enumerate(re.finditer(r"= '([^']+)'", sql)):
        put = lambda text, match=match: sql[: match.start()] + text + sql[match.end() :]  # noqa: E731
        out |= {f"{i} not": put(f"<> '{match[1]}'"), f"{i} begins": put(f"LIKE '{match[1]}%'")}
        out |= {f"{i} holds": put(f"LIKE '%{match[1]}%'"), f"{i} above": put(f">= '{match[1]}'")}
        out |= {f"{i} another": put(f"= '{match[1]}x'")}
    return out


def _conditions(sql: str) -> dict[str, str]:
    """One condition fewer, any of them instead of all, none of them."""
    out: dict[str, str] = {}
    if match := re.search(r" WHERE (.+?)(?= GROUP BY|$)", sql):
        parts = match[1].split(" AND ") if "SELECT" not in match[1] else []
        for i in range(len(parts)):
            rest = " AND ".join(parts[:i] + parts[i + 1 :])
            out[f"without condition {i}"] = sql.replace(match[0], f" WHERE {rest}" if rest else "")
        if len(parts) > 1:
            out["or"] = sql.replace(match[1], " OR ".join(parts))
        out["negated"] = sql.replace(match[1], f"NOT ({match[1]})")
    return out


def _aggregates(sql: str) -> dict[str, str]:
    """Another function over the rows, or a count of something else."""
    out: dict[str, str] = {}
    for a, b in (
        ("MAX(", "MIN("),
        ("MAX(", "SUM("),
        ("SUM(", "MAX("),
        ("SUM(", "AVG("),
        ("SUM(", "COUNT("),
        ("SUM(", "SUM(DISTINCT "),
        ("AVG(", "MAX("),
        ("AVG(", "MIN("),
    ):
        if a in sql:
            out[f"{a} {b}"] = sql.replace(a, b, 1)
    if "COUNT(*)" in sql:
        out["count of names"] = sql.replace(
            "COUNT(*)",
            "COUNT(DISTINCT title)"
            if "title" in sql
            else "COUNT(DISTINCT name)"
            if "artist.name" not in sql
            else "COUNT(DISTINCT album.id)",
        )
        out["count and one"] = sql.replace("COUNT(*)", "COUNT(*) + 1")
    return out


def _columns(sql: str) -> dict[str, str]:
    """Another column asked for, or tested."""
    out: dict[str, str] = {}
    head, _, tail = sql.partition(" FROM ")
    for a, b in _COLUMNS.items():
        word = re.compile(rf"\b{a}\b")
        if word.search(head):
            out[f"asks for {b}"] = word.sub(b, head) + " FROM " + tail
        if word.search(tail):
            out[f"tests {b}"] = head + " FROM " + word.sub(b, tail)
    return out


def _joins(sql: str) -> dict[str, str]:
    """Other rows of a second table."""
    out: dict[str, str] = {}
    if " NOT IN " in sql:
        out["in"] = sql.replace(" NOT IN ", " IN ")
    if " JOIN " in sql:
        out["left join"] = sql.replace(" JOIN ", " LEFT JOIN ", 1)
        out["cross join"] = re.sub(r" ON [\w.]+ = [\w.]+", "", sql, count=1)
        out["joined by id"] = (
            sql.replace("album.artist = artist.id", "album.id = artist.id")
            if "album.artist" in sql
            else sql.replace("track.album = album.id", "track.id = album.id")
        )
    return out


def _groups(sql: str) -> dict[str, str]:
    """Other groups, or an average of other rows."""
    out: dict[str, str] = {}
    if " GROUP BY " in sql:
        out["one group"] = sql[: sql.index(" GROUP BY ")]
        out["groups of two"] = f"{sql} HAVING COUNT(*) > 1"
    if "other.album = track.album" in sql:
        out["average of all"] = sql.replace(" WHERE other.album = track.album", "")
    if "SELECT AVG(" in sql and " AND " in sql:
        tests = sql.split(" AND ", 1)[1]
        out["average of the kept"] = re.sub(r"(SELECT AVG\(\w+\) FROM \w+)", rf"\1 WHERE {tests}", sql, count=1)
    return out


def rewrites(sql: str) -> dict[str, str]:
    """name -> a query that means the same."""
    out = {
        "semicolon": f"{sql};",
        "outer": f"SELECT * FROM ({sql})",
        "small": re.sub(r"\b(SELECT|FROM|WHERE|AND|GROUP BY|JOIN|ON|COUNT|SUM|MAX|AVG)\b", lambda m: m[0].lower(), sql),
        "not above": re.sub(r"(\w+) > (\d+)", r"NOT \1 <= \2", sql),
        "at least": re.sub(r"(\w+) > (\d+)", lambda m: f"{m[1]} >= {int(m[2]) + 1}", sql),
        "at most": re.sub(r"(\w+) < (\d+)", lambda m: f"{m[1]} <= {int(m[2]) - 1}", sql),
        "in": re.sub(r"([\w.]+) = ('[^']+')", r"\1 IN (\2)", sql),
        "count one": sql.replace("COUNT(*)", "COUNT(1)"),
        "sum of ones": sql.replace("SELECT COUNT(*)", "SELECT TOTAL(1)"),
        "ordered": f"{sql} ORDER BY 1",
    }
    if "GROUP BY artist.name" in sql:
        out["grouped by id too"] = sql.replace("GROUP BY artist.name", "GROUP BY artist.id, artist.name")
    if "GROUP BY title" in sql:
        out["grouped by id too"] = sql.replace("GROUP BY title", "GROUP BY album.id, title")
    if match := re.fullmatch(r"SELECT title FROM album JOIN artist ON album.artist = artist.id WHERE (.+)", sql):
        out["subquery"] = f"SELECT title FROM album WHERE artist IN (SELECT id FROM artist WHERE {match[1]})"
    if match := re.fullmatch(r"SELECT name FROM artist WHERE id NOT IN \(SELECT artist.id FROM .+ WHERE (.+)\)", sql):
        out["not exists"] = (
            "SELECT name FROM artist AS a WHERE NOT EXISTS (SELECT 1 FROM album JOIN track ON track.album = album.id "
            f"WHERE album.artist = a.id AND {match[1]})"
        )
    if match := re.search(r" WHERE (\S+ \S+ \S+) AND (\S+ \S+ [^\s)]+)(?= GROUP|$|\))", sql):
        out["turned"] = sql.replace(match[0], f" WHERE {match[2]} AND {match[1]}")
    return {name: text for name, text in out.items() if text != sql}


def differs(problem: Problem, sql: str, databases: list[sqlite3.Connection]) -> bool:
    """Whether a query gives other rows than the reference on one of the databases, or does not run."""
    for connection in databases:
        try:
            if not same(query(connection, problem.answer), query(connection, sql), False):
                return True
        except (sqlite3.Error, ValueError):
            return True
    return False


def databases(problem: Problem) -> list[sqlite3.Connection]:
    """`CHECKS` random databases of the problem's schema."""
    rng = Random(seed_for("checks", problem.id))
    return [connect(_random(rng, problem)) for _ in range(CHECKS)]


def _random(rng: Random, problem: Problem) -> dict[str, dict[str, Any]]:
    tables, sql = problem.args["tables"], problem.answer
    numbers = [int(n) + d for n in re.findall(r"(?<=[<>] )\d+", sql) for d in (-1, 0, 1, 2, 9)]
    words = re.findall(r"'([^']+)'", sql)
    size = rng.choice([0, 3, 8, 15, 30, 80])
    few = rng.random() < 0.3  # numbers that are often equal
    out: dict[str, dict[str, Any]] = {}
    for name in ("artist", "album", "track") if "artist" in tables else tables:
        columns, base = tables[name]["columns"], tables[name]["rows"]
        rows = []
        for n in range(size and rng.randint(1, size)):
            row: list[Any] = []
            for i, (column, kind) in enumerate(columns):
                if column == "id":
                    row.append(n + 1)
                elif column in ("artist", "album"):
                    row.append(rng.randint(1, max(1, len(out[column]["rows"]))))
                elif kind == "INTEGER":
                    row.append(rng.choice([4, 5] if few else [*numbers, *(r[i] for r in base)]))
                elif name == "artist" or (column == "title" and "GROUP BY" in sql):
                    row.append(
                        words[0] if words and n == 0 and "artist.name" in sql else f"{base[n % len(base)][i]} {n}"
                    )
                else:
                    tested = re.search(rf"\b{column} = '([^']+)'", sql)
                    more = [tested[1], tested[1], f"{tested[1]}s", f"New {tested[1]}"] if tested else []
                    row.append(rng.choice([*more, *(r[i] for r in base), *(f"{r[i]}{n}" for r in base[:3])]))
            rows.append(row)
        out[name] = {"columns": columns, "rows": rows}
    return out
