"""A SQL query, by its result: equal to the reference's on the problem's database, on five mutations of it, and
on six others of its schema that are drawn for the reference (`synth.verify._database`).

The query reads in-memory tables and nothing else: an authoriser denies ATTACH, PRAGMA, writes and functions that
allocate or vary; steps of the virtual machine, rows, lengths and nesting are limited; and all of it runs in a child of
the pool. Two queries are compared, not their texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.types import Problem, Score
from synth.verify import RIGHT, WRONG
from synth.verify._database import judged, same

SECONDS = 5
FORM = "data"
EXAMPLE = {
    "prompt": "t(name, age). Names of those older than 30?",
    "answer": "SELECT name FROM t WHERE age > 30",
    "args": {
        "tables": {
            "t": {
                "columns": [["name", "TEXT"], ["age", "INTEGER"]],
                "rows": [["Ann", 31], ["Bob", 30], ["Cid", 52], ["Dot", 9]],
            }
        }
    },
}


def sql(problem: Problem, answer: str, *, tables: Mapping[str, Any] | None = None, ordered: bool = False) -> Score:
    """1 where both queries give the same rows on all twelve databases; as a multiset unless `ordered`. `TIMEOUT` beyond
    the limits."""
    verdict = judged(problem, answer, tables or {}, lambda gold, given: None if same(gold, given, ordered) else WRONG)
    return RIGHT if verdict is None else verdict
