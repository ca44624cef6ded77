"""Problems for which the model may query the problem's tables before it answers."""

from __future__ import annotations

from typing import Literal

from training.env._tooled import Budget, Tooled
from training.env.tool.sql import sql as tool

TOOLS = "sql"
BUDGETS = ("turns", "calls", "parallel", "result", "context")
ENDS = "an answer; a call after a budget is used up; with broken = end, a turn without a call that can be read"
GIVES = ("answered", "turns", "calls", "failed", "cost", "malformed", "spent", "used_*")


def sql(
    *,
    turns: int = 6,
    calls: int = 8,
    parallel: int = 4,
    result: int = 500,
    context: int = 4000,
    broken: Literal["tell", "end"] = "tell",
    describe: bool = True,
    instructions: str = "",
) -> Tooled:
    """One tool, `sql`. For the rest see the docstring of training/env/_tooled.py."""
    budget = Budget(turns=turns, calls=calls, parallel=parallel, result=result, context=context)
    return Tooled(makers={"sql": tool}, budget=budget, broken=broken, describe=describe, instructions=instructions)
