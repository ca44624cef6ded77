"""The search tool of the environment `search` (passages of a knowledge base), called as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.types import Problem
from training.env.tool import Tool


def search(problem: Problem, tools: Mapping[str, Any]) -> Tool:
    """Raises LookupError if the player has no search tool."""
    if "search" not in tools:
        raise LookupError(
            f"problem {problem.id} is to be played with the tool search, but no tool 'search' was given to the player"
        )
    return Tool(
        name="search",
        description="The passages that fit a query best.",
        run=lambda query: tools["search"](query),
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string"}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )
