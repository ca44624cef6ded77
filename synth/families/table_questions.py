"""A question about a table that is in the question: a sum, a count, the largest, the average.

Certificate: comprehensions over the drawn rows against a query that sqlite runs over the table read back from the text.
Difficulty axes: rows, conditions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._tables import SCHEMAS, draw_condition, draw_table, holds
from synth.families._wordings import Wordings, read_kind
from synth.types import Problem, Quarantined, Split
from synth.verify._database import connect, query

LADDER = (
    {"rows": 4, "conditions": 0},
    {"rows": 6, "conditions": 1},
    {"rows": 9, "conditions": 2},
    {"rows": 14, "conditions": 2},
)
CERTIFICATE = ("comprehensions over the rows", "sqlite over the table of the text")
_TABLE, _WHERE = r"\w+: [\w ;]+", r"\w+ [=<>] \w+(?: and \w+ [=<>] \w+)*"
_SHAPE = "Rows are parted by ;, columns named first."
WORDINGS = {
    "count": Wordings(
        "{table}. How many rows have {where}?",
        "{table}. Count the rows with {where}.",
        "This is a table. {table}. In how many of its rows is {where}?",
        "What is the number of rows with {where} in the table {table}?",
        "A clerk wants to know how many rows have {where}. {table}.",
        answer=f"{_SHAPE} Answer with one integer.",
        table=_TABLE,
        where=_WHERE,
    ),
    "sum": Wordings(
        "{table}. What is the sum of {column} where {where}?",
        "{table}. Add up {column} over the rows with {where}.",
        "This is a table. {table}. What is the total {column} of its rows with {where}?",
        "Find the sum of the column {column}, only for rows with {where}, in the table {table}.",
        "A clerk needs the total of {column} for all rows with {where}. {table}.",
        answer=f"{_SHAPE} Answer with one integer.",
        table=_TABLE,
        column=r"\w+",
        where=_WHERE,
    ),
    "largest": Wordings(
        "{table}. What is the largest {column} where {where}?",
        "{table}. Among the rows with {where}, which {column} is the highest?",
        "This is a table. {table}. How high is the greatest {column} of its rows with {where}?",
        "Find the largest {column}, only for rows with {where}, in the table {table}.",
        "A clerk looks for the highest {column} of all rows with {where}. {table}.",
        answer=f"{_SHAPE} Answer with one integer.",
        table=_TABLE,
        column=r"\w+",
        where=_WHERE,
    ),
    "who": Wordings(
        "{table}. Which name has the largest {column} where {where}?",
        "{table}. Among the rows with {where}, whose {column} is the highest?",
        "This is a table. {table}. Which name belongs to the greatest {column} of its rows with {where}?",
        "Find the name with the largest {column}, only for rows with {where}, in the table {table}.",
        "A clerk looks for the name with the highest {column} of all rows with {where}. {table}.",
        answer=f"{_SHAPE} Answer with one name.",
        table=_TABLE,
        column=r"\w+",
        where=_WHERE,
    ),
}
_CONDITION = re.compile(r"(\w+) (=|<|>) (\w+)")


def table_questions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a number or a name. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="table_questions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, conditions: int) -> tuple[str, tuple]:
    while True:
        name = rng.choice(sorted(SCHEMAS))
        tables = draw_table(rng, name, rows)
        columns, records = [c for c, _ in tables[name]["columns"]], tables[name]["rows"]
        kind, number = rng.choice(sorted(WORDINGS)), rng.choice(SCHEMAS[name][1])
        where = [draw_condition(rng, name) for _ in range(conditions or 1)]
        kept = [r for r in records if all(holds(r[columns.index(c)], s, v) for c, s, v in where)]
        values = [r[columns.index(number)] for r in kept]
        if kept and len({c for c, _, _ in where}) == len(where) and (kind != "who" or values.count(max(values)) == 1):
            return f"{kind} {number} {where} {records}", (name, columns, records, kind, number, where, kept)


def pose(spec: tuple) -> dict[str, Any]:
    name, columns, records, kind, number, where, kept = spec
    values = [r[columns.index(number)] for r in kept]
    best = max(range(len(kept)), key=values.__getitem__)
    answer = {"count": len(kept), "sum": sum(values), "largest": values[best], "who": kept[best][0]}[kind]
    listed = "; ".join([" ".join(columns), *(" ".join(map(str, r)) for r in records)])
    asked = {"table": f"{name}: {listed}", "where": " and ".join(f"{c} {s} {v}" for c, s, v in where)}
    if kind != "count":
        asked["column"] = number
    working = ", ".join(f"{r[0]} {v}" for r, v in zip(kept, values, strict=True))
    return {
        "prompt": WORDINGS[kind].write(**asked),
        "answer": str(answer),
        "verifier": "exact" if kind == "who" else "number",
        "working": working,
    }


def solve(question: str) -> str:
    kind, read = read_kind(WORDINGS, question)
    name, _, listed = read["table"].partition(": ")
    head, *rows = [line.split() for line in listed.split("; ")]
    texts = set(SCHEMAS[name][0])
    columns = [[c, "TEXT" if c in texts else "INTEGER"] for c in head]
    typed = [[v if c in texts else int(v) for c, v in zip(head, row, strict=True)] for row in rows]
    conditions = []
    for text in read["where"].split(" and "):
        c, sign, value = parsed(_CONDITION, text).groups()
        conditions.append(f"{c} {sign} {value}" if value.isdigit() else f"{c} {sign} '{value}'")
    column = read.get("column", "")
    what = {"sum": f"SUM({column})", "largest": f"MAX({column})", "who": "name", "count": "COUNT(*)"}[kind]
    tail = f" ORDER BY {column} DESC LIMIT 1" if kind == "who" else ""
    connection = connect({name: {"columns": columns, "rows": typed}})
    try:
        selected = query(connection, f"SELECT {what} FROM {name} WHERE {' AND '.join(conditions)}{tail}")
    finally:
        connection.close()
    if not selected or selected[0][0] is None:
        raise Refused(f"impossible: no row of the table fits {read['where']!r}")
    return str(selected[0][0])
