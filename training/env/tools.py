"""Any mix of tools: the shipped ones by name, and all tools of servers that speak the Model Context Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from training.env._tooled import Budget, Tooled
from training.env.tool.calculator import calculator
from training.env.tool.search import search
from training.env.tool.sql import sql

TOOLS = "those of `use`, and of the servers of `servers`"
BUDGETS = ("turns", "calls", "parallel", "result", "context", "cost")
ENDS = "an answer; a call after a budget is used up; with broken = end, a turn without a call that can be read"
GIVES = ("answered", "turns", "calls", "failed", "cost", "malformed", "spent", "used_*")
SHIPPED = {"calculator": calculator, "search": search, "sql": sql, "python": None}


def tools(
    *,
    use: Sequence[str] = ("calculator",),
    servers: Sequence[str] = (),
    turns: int = 8,
    calls: int = 16,
    parallel: int = 4,
    result: int = 2000,
    context: int = 12_000,
    cost: float = 0.0,
    broken: Literal["tell", "end"] = "tell",
    describe: bool = True,
    instructions: str = "",
) -> Tooled:
    """`use`: names of calculator, search, sql, python, and of further tools that the player has. `servers`: command
    lines of MCP servers (training stages start and end them). Raises ValueError if there is no tool at all, and for a
    budget below 1."""
    if not use and not servers:
        raise ValueError("the environment tools has no tool: name some in `use`, or a server in `servers`")
    budget = Budget(turns=turns, calls=calls, parallel=parallel, result=result, context=context, cost=cost)
    makers = {name: SHIPPED.get(name) for name in use}
    return Tooled(
        makers=makers,
        budget=budget,
        servers=tuple(servers),
        broken=broken,
        describe=describe,
        instructions=instructions,
    )
