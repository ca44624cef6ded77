"""The area of a polygon with whole-number corners.

Certificate: the shoelace formula on the values against Pick's theorem with lattice points counted from the text.
Difficulty axes: corners, size of the coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import gcd
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"corners": 3, "size": 6}, {"corners": 4, "size": 8}, {"corners": 6, "size": 10}, {"corners": 8, "size": 14})
CERTIFICATE = ("shoelace formula", "Pick's theorem, points counted from the text")
WORDINGS = Wordings(
    "What is the area of the polygon with the corners {corners}, joined in this order?",
    "Find the area of the polygon whose corners, in order, are {corners}.",
    "A field has its corners at {corners}, in this order along the fence. What is its area?",
    "Compute the area enclosed by the closed line {corners}, which ends where it begins.",
    "The points {corners} are joined in this order and the last to the first. How large is the area inside?",
    answer="Answer with an exact number such as 12 or 25/2.",
    corners=r"\(-?\d+, -?\d+\)(?:, \(-?\d+, -?\d+\))+",
)
Point = tuple[int, int]
Spec = list[Point]


def polygon_areas(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="polygon_areas",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, corners: int, size: int) -> tuple[str, Spec]:
    while True:
        points = [(rng.randint(-size, size), rng.randint(-size, size)) for _ in range(corners)]
        if len(set(points)) == corners and simple(points):
            first = points.index(min(points))
            return f"{points[first:] + points[:first]}", points


def side(a: Point, b: Point, c: Point) -> int:
    """Above 0 where c lies left of the line from a to b, 0 where it lies on it."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def simple(points: Spec) -> bool:
    """Whether no three neighbours lie on a line and no two sides that are no neighbours touch."""
    n = len(points)
    sides = [(points[i], points[(i + 1) % n]) for i in range(n)]
    if any(side(*sides[i], sides[(i + 1) % n][1]) == 0 for i in range(n)):
        return False
    for i, (a, b) in enumerate(sides):
        for j, (c, d) in enumerate(sides):
            if (
                j > i + 1
                and (j + 1) % n != i
                and side(a, b, c) * side(a, b, d) <= 0
                and side(c, d, a) * side(c, d, b) <= 0
            ):
                return False
    return True


def pose(spec: Spec) -> dict[str, Any]:
    twice = sum(a * d - b * c for (a, b), (c, d) in zip(spec, [*spec[1:], spec[0]], strict=True))
    return {
        "prompt": WORDINGS.write(corners=", ".join(map(str, spec))),
        "answer": str(Fraction(abs(twice), 2)),
        "verifier": "number",
        "working": f"Twice the area is {abs(twice)}.",
    }


def solve(question: str) -> str:
    numbers = integers(WORDINGS.read(question)["corners"])
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    sides = list(zip(points, [*points[1:], points[0]], strict=True))
    edge = sum(gcd(c - a, d - b) for (a, b), (c, d) in sides)
    inside = 0
    for y in range(min(numbers[1::2]) + 1, max(numbers[1::2])):
        for x in range(min(numbers[::2]) + 1, max(numbers[::2])):
            if not any(_on(x, y, *line) for line in sides):  # a ray to the right crosses an odd number of sides
                inside += (
                    sum(
                        (b > y) != (d > y) and (d > b) == ((x - a) * (d - b) < (y - b) * (c - a))
                        for (a, b), (c, d) in sides
                    )
                    % 2
                )
    return str(Fraction(2 * inside + edge - 2, 2))


def _on(x: int, y: int, a: Point, b: Point) -> bool:
    between = min(a[0], b[0]) <= x <= max(a[0], b[0]) and min(a[1], b[1]) <= y <= max(a[1], b[1])
    return between and (x - a[0]) * (b[1] - a[1]) == (y - a[1]) * (b[0] - a[0])
