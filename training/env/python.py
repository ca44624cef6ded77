"""Problems that the model solves with programs that it writes, run in the sandbox."""

from __future__ import annotations

from typing import Literal

from training.env._tooled import Budget, Tooled

TOOLS = "python"
BUDGETS = ("turns", "calls", "parallel", "result", "context")
ENDS = "an answer; a call after a budget is used up; with broken = end, a turn without a call that can be read"
GIVES = ("answered", "turns", "calls", "failed", "cost", "malformed", "spent", "used_*")


def python(
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
    """One tool, `python`. For the rest see the docstring of training/env/_tooled.py."""
    budget = Budget(turns=turns, calls=calls, parallel=parallel, result=result, context=context)
    return Tooled(makers={"python": None}, budget=budget, broken=broken, describe=describe, instructions=instructions)
