"""Sums, differences and products of integers with parentheses.

Certificate: recursion over the drawn tree against a shunting-yard over the text. Difficulty axes: terms, size of the
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._arithmetic import Tree, evaluate, grow, parse, shunting_yard, write
from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"terms": 2, "size": 99, "operators": "+-"},
    {"terms": 3, "size": 20, "operators": "+-*"},
    {"terms": 4, "size": 50, "operators": "+-*"},
    {"terms": 5, "size": 99, "operators": "+-*"},
    {"terms": 7, "size": 999, "operators": "+-*"},
)
CERTIFICATE = ("recursion over the tree", "shunting-yard over the text")
_TEXT = re.compile(r"Compute (.+)\.")


def integer_arithmetic(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the value of an expression. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="integer_arithmetic",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int, operators: str) -> tuple[str, Tree]:
    tree = grow(rng, terms, operators, lambda r: Fraction(r.randint(1, size)))
    return write(tree), tree


def pose(tree: Tree) -> dict[str, Any]:
    steps: list[str] = []
    value = evaluate(tree, steps)
    return {
        "prompt": f"Compute {write(tree)}.",
        "answer": str(value),
        "verifier": "number",
        "working": ", ".join(steps),
    }


def solve(question: str) -> str:
    return str(shunting_yard(parsed(_TEXT, question)[1]))


def posed(question: str) -> dict[str, Any]:
    """A question that was proposed, read back into a tree: its normal form, text and answer. Raises Refused for another
    text."""
    text = parsed(_TEXT, question)[1]
    if len(re.findall(r"\d+", text)) > 12 or re.search(r"\d{7}|/|÷", text):
        raise Refused(f"roundtrip: {text!r} has more than 12 numbers, one above 999999, or a division")
    tree = parse(text)
    return {"form": write(tree), **pose(tree)}
