"""Who is left when every k-th of a circle leaves.

Certificate: a recurrence on the values against a circle of names that shrinks, from the text. Difficulty axes:
persons, size of the count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"persons": 8, "count": 4},
    {"persons": 16, "count": 7},
    {"persons": 40, "count": 12},
    {"persons": 120, "count": 40},
)
CERTIFICATE = ("a recurrence", "a circle that shrinks")
WORDINGS = Wordings(
    "{n} people stand in a circle, numbered 1 to {n}. Counting from person {s}, who is counted as 1, every {k}th person leaves until one is left. Which number is left?",
    "Numbers 1 to {n} are written around a circle. Beginning with {s} as the first, every {k}th number still there is struck out until one remains. Which one?",
    "In a counting-out game {n} children, numbered 1 to {n} around a circle, are counted from child {s} as one; whoever is counted {k} leaves and the count starts anew with the next. Who stays last?",
    "A Josephus problem: {n} soldiers 1 to {n} in a ring, the count begins at soldier {s} with 1, and each {k}th one drops out. What is the number of the last?",
    "Cards numbered 1 to {n} lie in a ring. Starting with card {s} as number one, every {k}th card that is still there is taken away. Which card is left at the end?",
    answer="After {n} comes 1 again, and those who have left are not counted. Answer with one integer.",
)
Spec = tuple[int, int, int]


def counting_out(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="counting_out",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, persons: int, count: int) -> tuple[str, Spec]:
    n, k = rng.randint(persons // 2, persons), rng.choice([k for k in range(4, count + 3) if k % 10 > 3 or 10 < k < 14])
    s = rng.randint(1, n)
    return f"{n} {k} {s}", (n, k, s)


def pose(spec: Spec) -> dict[str, Any]:
    n, k, s = spec
    last = 0
    for size in range(2, n + 1):
        last = (last + k) % size
    return {
        "prompt": WORDINGS.write(n=n, k=k, s=s),
        "answer": str((last + s - 1) % n + 1),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    n, k, s = (int(fields[name]) for name in "nks")
    circle = deque([*range(s, n + 1), *range(1, s)])
    while len(circle) > 1:
        for _ in range(k - 1):
            circle.append(circle.popleft())
        circle.popleft()
    return str(circle[0])
