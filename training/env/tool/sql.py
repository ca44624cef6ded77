"""A read-only query on the tables of the problem (`args["tables"]`), within limits of steps, rows, bytes and lengths;
nothing is written.

It runs in a child of the verifiers' pool (synth/verify/_pool.py): the memory of a running query is used, and limited,
there and not in the training process. The limits of steps and lengths are below those of the verifiers, because a model
sends many queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.types import Problem
from synth.verify._database import MAX_SQL
from synth.verify._pool import shared
from training.env.tool import Tool

STEPS, LENGTH, ROWS = 400_000, 4000, 50


def sql(problem: Problem, tools: Mapping[str, Any]) -> Tool:
    """Raises LookupError for a problem without tables."""
    tables = problem.args.get("tables")
    if not tables:
        raise LookupError(f"problem {problem.id} is to be played with the tool sql, but has no tables to query")

    def run(query: str) -> str:
        lines, total = shared().query(tables, query, steps=STEPS, length=LENGTH, rows=ROWS)
        return (
            "\n".join(lines) + (f"\n({total} rows, the first {ROWS} are shown)" if total > ROWS else "") or "(no rows)"
        )

    return Tool(
        name="sql",
        description=f"The rows of a SELECT on the tables of the problem, at most {ROWS}.",
        run=run,
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "maxLength": MAX_SQL}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )
