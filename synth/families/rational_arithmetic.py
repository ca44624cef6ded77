"""Sums, products and quotients of fractions, exactly.

Certificate: recursion over the drawn tree against a shunting-yard over the text. Difficulty axes: terms, size of
numerator and denominator.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._arithmetic import Tree, evaluate, grow, shunting_yard, write
from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"terms": 2, "size": 9, "operators": "+-"},
    {"terms": 2, "size": 20, "operators": "+-*÷"},
    {"terms": 3, "size": 12, "operators": "+-*÷"},
    {"terms": 4, "size": 20, "operators": "+-*÷"},
)
CERTIFICATE = ("recursion over the tree", "shunting-yard over the text")
WORDINGS = Wordings(
    "Compute {expression} as a fraction.",
    "What is {expression}?",
    "Work out {expression} without rounding.",
    "Find the exact value of {expression}.",
    "Simplify {expression} to a single number.",
    answer="Answer with a fraction such as 3/8, or an integer.",
    expression=r"[-+*÷/() \d]+",
)


def rational_arithmetic(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the exact value. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="rational_arithmetic",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int, operators: str) -> tuple[str, Tree]:
    while True:
        tree = grow(rng, terms, operators, lambda r: Fraction(r.randint(1, size), r.randint(2, size)))
        try:
            if abs(evaluate(tree, []).denominator) < 10**6:
                return write(tree), tree
        except ZeroDivisionError:
            continue


def pose(tree: Tree) -> dict[str, Any]:
    steps: list[str] = []
    value = evaluate(tree, steps)
    return {
        "prompt": WORDINGS.write(expression=write(tree)),
        "answer": str(value),
        "verifier": "number",
        "working": ", ".join(steps),
    }


def solve(question: str) -> str:
    return str(shunting_yard(WORDINGS.read(question)["expression"]))
