"""The greatest value of a linear function of two variables under linear limits.

Certificate: all corners of the region on the values against the least value of the dual programme of the text.
Difficulty axes: limits, size of the coefficients.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"limits": 2, "size": 5}, {"limits": 3, "size": 7}, {"limits": 4, "size": 9}, {"limits": 6, "size": 12})
CERTIFICATE = ("corners of the region", "the dual programme of the text")
WORDINGS = Wordings(
    "Maximise {goal} subject to {limits}, where x and y are real numbers, x >= 0 and y >= 0. What is the maximum?",
    "What is the largest value of {goal} over all real x, y >= 0 with {limits}?",
    "Real numbers x >= 0 and y >= 0 satisfy {limits}. How large can {goal} be?",
    "A linear programme in real variables x, y >= 0 has the limits {limits} and the goal to maximise {goal}. Compute its optimal value.",
    "Two real quantities x and y, neither negative, obey {limits}. Find the greatest value that {goal} takes.",
    answer="Answer with an exact number, an integer or a fraction such as 7/2.",
    goal=r"\d*x \+ \d*y",
    limits=r"\d*x \+ \d*y <= \d+(?:, \d*x \+ \d*y <= \d+)*",
)
Row = tuple[int, int, int]
Spec = tuple[tuple[int, int], list[Row]]


def linear_programmes(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="linear_programmes",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, limits: int, size: int) -> tuple[str, Spec]:
    while True:
        goal = (rng.randint(1, size), rng.randint(1, size))
        rows = [(rng.randint(1, size), rng.randint(1, size), rng.randint(size, 4 * size)) for _ in range(limits)]
        x, y, _ = corner(goal, rows)
        if x and y:
            return f"{goal} {sorted(rows)}", (goal, rows)


def corner(goal: tuple[int, int], rows: Sequence[Row]) -> tuple[Fraction, Fraction, Fraction]:
    """(x, y, value) of a best corner of the region."""
    best = (Fraction(0), Fraction(0), Fraction(0))
    for (a, b, c), (d, e, f) in combinations([*rows, (1, 0, 0), (0, 1, 0)], 2):
        if det := a * e - b * d:
            x, y = Fraction(c * e - b * f, det), Fraction(a * f - c * d, det)
            if x >= 0 and y >= 0 and all(p * x + q * y <= r for p, q, r in rows):
                best = max(best, (x, y, goal[0] * x + goal[1] * y), key=lambda point: point[2])
    return best


def term(a: int, b: int) -> str:
    return f"{'' if a == 1 else a}x + {'' if b == 1 else b}y"


def pose(spec: Spec) -> dict[str, Any]:
    goal, rows = spec
    x, y, value = corner(goal, rows)
    return {
        "prompt": WORDINGS.write(goal=term(*goal), limits=", ".join(f"{term(a, b)} <= {c}" for a, b, c in rows)),
        "answer": str(value),
        "verifier": "number",
        "working": f"At x = {x}, y = {y}.",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    read = lambda text: [[int(n or 1) for n in row] for row in re.findall(r"(\d*)x \+ (\d*)y(?: <= (\d+))?", text)]  # noqa: E731
    ((p, q, _),), rows = read(fields["goal"]), read(fields["limits"])
    prices = [
        {i: max(Fraction(p, a), Fraction(q, b))} for i, (a, b, _) in enumerate(rows)
    ]  # one limit alone has a price
    for i, j in combinations(range(len(rows)), 2):
        (a, b, _), (d, e, _) = rows[i], rows[j]
        if det := a * e - b * d:
            prices.append({i: Fraction(p * e - q * d, det), j: Fraction(a * q - b * p, det)})
    dual = [
        sum(u * rows[i][2] for i, u in price.items())
        for price in prices
        if min(price.values()) >= 0
        and sum(u * rows[i][0] for i, u in price.items()) >= p
        and sum(u * rows[i][1] for i, u in price.items()) >= q
    ]
    return str(min(dual))
