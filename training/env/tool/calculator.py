"""Exact arithmetic on whole numbers: + - * / and parentheses, by the parser of the verifier `expression`, which
evaluates no code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from synth.types import Problem
from synth.verify.expression import parse
from training.env.tool import Tool


def calculator(problem: Problem, tools: Mapping[str, Any]) -> Tool:
    return Tool(
        name="calculator",
        description="The exact value of an expression of whole numbers with + - * / and parentheses.",
        run=_value,
        parameters={
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
            "additionalProperties": False,
        },
    )


def _value(expression: str) -> str:
    value = parse(expression).value
    if value is None:
        raise ZeroDivisionError("something is divided by 0")
    return str(value)
