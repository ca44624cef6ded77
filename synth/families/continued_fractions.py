"""The continued fraction of a rational number.

Certificate: the drawn quotients folded up to a fraction against repeated division of the text's numbers. Difficulty
axes: quotients, size of the quotients.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"quotients": 3, "size": 6},
    {"quotients": 4, "size": 9},
    {"quotients": 5, "size": 12},
    {"quotients": 7, "size": 15},
)
CERTIFICATE = ("quotients folded up", "repeated division of the text's numbers")
WORDINGS = Wordings(
    "Write {p}/{q} as a simple continued fraction whose last quotient is greater than 1.",
    "What is the simple continued fraction of {p}/{q}? Its last quotient must exceed 1.",
    "Expand {p}/{q} into a simple continued fraction; the last quotient is to be greater than 1.",
    "Find the partial quotients of the simple continued fraction of {p}/{q}, the last of them greater than 1.",
    "The number {p}/{q} equals a0 + 1/(a1 + 1/(a2 + ...)) with positive whole numbers, the last of them greater than 1. Which are they?",
    answer="Answer with the quotients from the first to the last, parted by spaces.",
)
Spec = list[int]


def continued_fractions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: whole numbers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="continued_fractions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, quotients: int, size: int) -> tuple[str, Spec]:
    spec = [rng.randint(1, size) for _ in range(quotients - 1)] + [rng.randint(2, size)]
    return f"{spec}", spec


def pose(spec: Spec) -> dict[str, Any]:
    p, q = spec[-1], 1
    for k in reversed(spec[:-1]):
        p, q = k * p + q, p
    return {"prompt": WORDINGS.write(p=p, q=q), "answer": " ".join(map(str, spec)), "verifier": "ordered_list"}


def solve(question: str) -> str:
    rest, out = Fraction(*map(int, WORDINGS.read(question).values())), []
    while True:
        out.append(whole := rest.numerator // rest.denominator)
        if rest == whole:
            return " ".join(map(str, out))
        rest = 1 / (rest - whole)
