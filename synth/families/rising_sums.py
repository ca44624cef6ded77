"""The largest sum of numbers that rise from left to right in a row.

Certificate: the best sum that ends at each place on the values against every rising choice followed from the text. Difficulty axes: numbers in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"n": 6}, {"n": 9}, {"n": 12}, {"n": 16})
CERTIFICATE = ("the best sum that ends at each place", "every rising choice followed from the text")
WORDINGS = Wordings(
    "From the row {row}, some numbers are kept, in their order, so that each is greater than the one before. What is the largest possible sum?",
    "Take numbers out of {row} so that those that stay rise strictly from left to right. How large can the sum of those that stay be?",
    "Find the greatest sum of a strictly increasing subsequence of {row}.",
    "Walking along {row}, you may pick up a number only if it is greater than all that you have. What is the most that you can collect?",
    "Of all strictly rising selections from {row}, left to right, which sum is the largest?",
    answer="Answer with one integer.",
    row=r"\d+(?:, \d+)+",
)
Spec = list[int]


def rising_sums(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="rising_sums",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, n: int) -> tuple[str, Spec]:
    row = [rng.randint(1, 60) for _ in range(n)]
    return str(row), row


def pose(spec: Spec) -> dict[str, Any]:
    best: list[int] = []
    for i, x in enumerate(spec):
        best.append(x + max((best[j] for j in range(i) if spec[j] < x), default=0))
    return {
        "prompt": WORDINGS.write(row=", ".join(map(str, spec))),
        "answer": str(max(best)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    row = integers(WORDINGS.read(question)["row"])

    def most(at: int, last: int) -> int:
        return max((row[i] + most(i + 1, row[i]) for i in range(at, len(row)) if row[i] > last), default=0)

    return str(most(0, 0))
