"""Is a candidate's answer to a computation right? True or False; half of the candidates are.

After Critique-Coder (Ruan et al. 2025, arXiv 2509.22824): the judgement is scored against what running the candidate
shows, never against an opinion. Certificate: the value by recursion decides the label, a shunting-yard over the text
proves it. Difficulty axes: terms, size of the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._arithmetic import evaluate, grow, shunting_yard, write
from synth.families._sample import item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"terms": 2, "size": 20}, {"terms": 3, "size": 50}, {"terms": 4, "size": 50}, {"terms": 6, "size": 99})
CERTIFICATE = ("recursion over the tree", "shunting-yard over the text")
_TEXT = re.compile(r"Somebody computed ([-+*() \d]+) and found (-?\d+)\. True or False\?")


def critiques(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: True or False. `levels` are the rungs of the ladder to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="critiques",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int) -> tuple[str, tuple]:
    tree = grow(rng, terms, "+-*", lambda r: Fraction(r.randint(1, size)))
    value = int(evaluate(tree, []))
    slips = (
        value + rng.choice((-1, 1)),
        value + rng.choice((-10, 10)),
        -value,
        value + rng.randint(2, 9),
        value - rng.randint(2, 9),
    )
    claimed = value if rng.random() < 0.5 else rng.choice([s for s in slips if s != value])
    return write(tree), (tree, value, claimed)


def pose(spec: tuple) -> dict[str, Any]:
    tree, value, claimed = spec
    steps: list[str] = []
    evaluate(tree, steps)
    return {
        "prompt": f"Somebody computed {write(tree)} and found {claimed}. True or False?",
        "answer": str(value == claimed),
        "verifier": "exact",
        "working": ", ".join(steps),
    }


def solve(question: str) -> str:
    text, claimed = parsed(_TEXT, question).groups()
    return str(shunting_yard(text) == int(claimed))
