"""Write a SQL query for a question about a table whose schema is given.

Certificate: sqlite runs the drawn query, and comprehensions evaluate a plan that is read from the text; both must agree
on the problem's database and on five mutations of it. The verifier compares results on the same twelve and on others. Difficulty axes:
conditions, grouping and order, rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._tables import SCHEMAS, draw_condition, draw_table, holds
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split, seed_for
from synth.verify._database import agreed

LADDER = (
    {"conditions": 1, "rows": 8, "kinds": ("list", "count")},
    {"conditions": 2, "rows": 10, "kinds": ("list", "count", "sum")},
    {"conditions": 1, "rows": 12, "kinds": ("group", "top", "above")},
    {"conditions": 2, "rows": 14, "kinds": ("group", "top", "above")},
)
CERTIFICATE = (
    "sqlite runs the query on twelve databases",
    "comprehensions over a plan read from the text, on the same twelve",
)
ASKS = {  # {0} a column of text, {1} one of numbers
    "list": "the {0} of all rows",
    "count": "the number of rows",
    "sum": "the sum of {1}",
    "group": "each {0} with its sum of {1}",
    "top": "the largest {1} of each {0}",
    "above": "the name of each row with {1} above the average {1} of the table",
}
QUERIES = {
    "list": "SELECT {0} FROM {2} WHERE {3}",
    "count": "SELECT COUNT(*) FROM {2} WHERE {3}",
    "sum": "SELECT COALESCE(SUM({1}), 0) FROM {2} WHERE {3}",
    "group": "SELECT {0}, SUM({1}) FROM {2} WHERE {3} GROUP BY {0}",
    "top": "SELECT {0}, MAX({1}) FROM {2} WHERE {3} GROUP BY {0}",
    "above": "SELECT name FROM {2} WHERE {1} > (SELECT AVG({1}) FROM {2}) AND {3}",
}
WORDINGS = Wordings(
    "Table {table}({columns}). Write SQL for {ask}, where {conditions}.",
    "A database has the table {table}({columns}). Find {ask}, where {conditions}.",
    "Someone wants to know {ask}, where {conditions}. The table is {table}({columns}).",
    "Which query of {table}({columns}) gives {ask}, where {conditions}?",
    "The table {table}({columns}) is stored in SQLite. Fetch {ask}, where {conditions}.",
    answer="Answer with one SQL query.",
    table=r"\w+",
    columns=r"\w+(?:, \w+)*",
    ask=r"[\w ]+",
    conditions=r"[\w ]+",
)
_CONDITION = re.compile(r"(\w+) is (above |below |)(\w+)")


def _pattern(text: str) -> re.Pattern[str]:
    """The first {0} and {1} of a text as groups x0 and x1, further ones as the same words again."""
    for name in ("0", "1"):
        text = text.replace(f"{{{name}}}", rf"(?P<x{name}>\w+)", 1).replace(f"{{{name}}}", f"(?P=x{name})")
    return re.compile(text)


_ASKS = [(kind, _pattern(text)) for kind, text in ASKS.items()]
Condition = tuple[str, str, str | int]


def text_to_sql(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), graded: bool = False
) -> Problem | Quarantined:
    """Problem `index` of a split: a query. `levels` are the levels to draw from; with `graded` a partly right result
    gets partial credit (synth/verify/sql_graded.py)."""
    problem = item(
        *(seed, split, index, levels),
        family="text_to_sql",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        agree=agree,
    )
    return replace(problem, verifier="sql_graded") if graded and isinstance(problem, Problem) else problem


def draw(rng: Random, *, conditions: int, rows: int, kinds: Sequence[str]) -> tuple[str, tuple]:
    name = rng.choice(sorted(SCHEMAS))
    texts, numbers = SCHEMAS[name]
    kind, number, text = rng.choice(kinds), rng.choice(numbers), rng.choice(list(texts)[1:])
    where: list[Condition] = []
    while len(where) < conditions:
        condition = draw_condition(rng, name)
        if condition[0] not in [c for c, _, _ in where]:
            where.append(condition)
    text = {"list": "name", "count": "", "sum": "", "above": ""}.get(kind, text)
    form = f"{name} {kind} {number if kind not in ('list', 'count') else ''} {text} {sorted(where, key=str)}"
    tables = draw_table(Random(seed_for("text_to_sql", form)), name, rows)  # a question always has the same database
    return form, (name, tables, kind, number, text, where)


def write(kind: str, name: str, number: str, text: str, where: Sequence[Condition]) -> str:
    conditions = " AND ".join(f"{c} {s} {v}" if isinstance(v, int) else f"{c} {s} '{v}'" for c, s, v in where)
    return QUERIES[kind].format(text, number, name, conditions)


def pose(spec: tuple) -> dict[str, Any]:
    name, tables, kind, number, text, where = spec
    words = {"=": "", ">": "above ", "<": "below "}
    conditions = " and ".join(f"{c} is {words[s]}{v}" for c, s, v in where)
    columns = ", ".join(c for c, _ in tables[name]["columns"])
    return {
        "prompt": WORDINGS.write(
            table=name, columns=columns, ask=ASKS[kind].format(text, number), conditions=conditions
        ),
        "answer": write(kind, name, number, text, where),
        "verifier": "sql",
        "args": {"tables": tables},
    }


def read(question: str) -> tuple[str, str, str, str, list[Condition]]:
    """(kind, table, number column, text column, conditions) from the text."""
    fields = WORDINGS.read(question)
    ask = fields["ask"]
    match = next(((k, m.groupdict()) for k, p in _ASKS if (m := p.fullmatch(ask))), None)
    if match is None:
        raise Refused(f"roundtrip: {ask!r} asks for nothing known")
    where: list[Condition] = []
    for text in fields["conditions"].split(" and "):
        column, word, value = parsed(_CONDITION, text).groups()
        where.append((column, {"": "=", "above ": ">", "below ": "<"}[word], int(value) if value.isdigit() else value))
    return match[0], fields["table"], match[1].get("x1", ""), match[1].get("x0", ""), where


def solve(question: str) -> str:
    kind, name, number, text, where = read(question)
    return write(kind, name, number, text, where)


def evaluate(plan: tuple, table: Mapping[str, Any]) -> list[tuple]:
    """The rows of a plan by comprehensions."""
    kind, _, number, text, where = plan
    columns = [c for c, _ in table["columns"]]
    records = [dict(zip(columns, r, strict=True)) for r in table["rows"]]
    kept = [r for r in records if all(holds(r[c], s, v) for c, s, v in where)]
    if kind == "list":
        return [(r[text],) for r in kept]
    if kind == "count":
        return [(len(kept),)]
    if kind == "sum":
        return [(sum(r[number] for r in kept),)]
    if kind == "above":
        total = sum(r[number] for r in records)
        return [(r["name"],) for r in kept if r[number] * len(records) > total]
    return [
        (g, (sum if kind == "group" else max)(r[number] for r in kept if r[text] == g)) for g in {r[text] for r in kept}
    ]


def agree(problem: Problem, other: str) -> bool:
    """Whether the stored query, the one written from the text, and the plan of the text give one result on all
    twelve databases."""
    plan = read(problem.question)
    return agreed(problem.args["tables"], [problem.answer, other], lambda database: evaluate(plan, database[plan[1]]))
