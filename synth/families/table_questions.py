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
from synth.types import Problem, Quarantined, Split
from synth.verify._database import connect, query

LADDER = (
    {"rows": 4, "conditions": 0},
    {"rows": 6, "conditions": 1},
    {"rows": 9, "conditions": 2},
    {"rows": 14, "conditions": 2},
)
CERTIFICATE = ("comprehensions over the rows", "sqlite over the table of the text")
_TEXT = re.compile(
    r"(\w+): (.+)\. (How many rows have|What is the sum of (\w+) where|What is the largest (\w+) where|"
    r"Which name has the largest (\w+) where) (.+)\?"
)
_CONDITION = re.compile(r"(\w+) (=|<|>) (\w+)")
ASKS = {
    "count": "How many rows have {1}?",
    "sum": "What is the sum of {0} where {1}?",
    "largest": "What is the largest {0} where {1}?",
    "who": "Which name has the largest {0} where {1}?",
}


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
        kind, number = rng.choice(sorted(ASKS)), rng.choice(SCHEMAS[name][1])
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
    ask = ASKS[kind].format(number, " and ".join(f"{c} {s} {v}" for c, s, v in where))
    working = ", ".join(f"{r[0]} {v}" for r, v in zip(kept, values, strict=True))
    return {
        "prompt": f"{name}: {listed}. {ask}",
        "answer": str(answer),
        "verifier": "exact" if kind == "who" else "number",
        "working": working,
    }


def solve(question: str) -> str:
    name, listed, ask, total, largest, who, where = parsed(_TEXT, question).groups()
    head, *rows = [line.split() for line in listed.split("; ")]
    texts = set(SCHEMAS[name][0])
    columns = [[c, "TEXT" if c in texts else "INTEGER"] for c in head]
    typed = [[v if c in texts else int(v) for c, v in zip(head, row, strict=True)] for row in rows]
    conditions = []
    for text in where.split(" and "):
        c, sign, value = parsed(_CONDITION, text).groups()
        conditions.append(f"{c} {sign} {value}" if value.isdigit() else f"{c} {sign} '{value}'")
    what = f"SUM({total})" if total else f"MAX({largest})" if largest else "name" if who else "COUNT(*)"
    tail = f" ORDER BY {who} DESC LIMIT 1" if who else ""
    connection = connect({name: {"columns": columns, "rows": typed}})
    try:
        selected = query(connection, f"SELECT {what} FROM {name} WHERE {' AND '.join(conditions)}{tail}")
    finally:
        connection.close()
    if not selected or selected[0][0] is None:
        raise Refused(f"impossible: no row of the table fits {where!r}")
    return str(selected[0][0])
