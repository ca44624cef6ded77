"""A reading query on the tables of the problem (`args["tables"]`), within limits of steps, rows and lengths; nothing is written.

The limits are below those of the verifier (synth/verify/_database.py), because this runs in the process that trains: 400,000 steps of the
virtual machine on values of at most 4,000 characters bound what a query can hold at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from synth.types import Problem
from synth.verify._database import MAX_SQL, connect, query
from training.tools import Tool

STEPS, LENGTH, ROWS = 400_000, 4000, 50


def sql(problem: Problem, tools: Mapping[str, Any]) -> Tool:
    """Raises LookupError for a problem without tables."""
    tables = problem.args.get("tables")
    if not tables:
        raise LookupError(f"problem {problem.id} is to be played with the tool sql, but has no tables to query")

    def run(text: str) -> str:
        connection = connect(tables)
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LENGTH)
            rows = query(connection, text, steps=STEPS)
        finally:
            connection.close()
        shown = "\n".join(" | ".join("NULL" if v is None else str(v) for v in row) for row in rows[:ROWS])
        return shown + (f"\n({len(rows)} rows, the first {ROWS} are shown)" if len(rows) > ROWS else "") or "(no rows)"

    return Tool(
        name="sql", description=f"The rows of a SELECT on the tables of the problem, at most {ROWS}.", run=lambda query: run(query),
        parameters={
            "type": "object", "properties": {"query": {"type": "string", "maxLength": MAX_SQL}}, "required": ["query"],
            "additionalProperties": False,
        },
    )  # fmt: skip
