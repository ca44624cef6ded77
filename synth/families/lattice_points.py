"""How many points with whole coordinates lie strictly inside a triangle.

Certificate: Pick's theorem on the values against every point tried by the signs of three areas. Difficulty axes: size of the triangle.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 6}, {"size": 12}, {"size": 20}, {"size": 32})
CERTIFICATE = ("Pick's theorem", "every point tried by the signs of three areas")
WORDINGS = Wordings(
    "How many points with whole coordinates lie strictly inside the triangle with corners {a}, {b} and {c}?",
    "A triangle has the corners {a}, {b} and {c}. Count the grid points strictly inside it.",
    "The points {a}, {b} and {c} form a triangle. How many lattice points are in its interior, none on its sides counted?",
    "Count the integer points within the triangle {a}, {b}, {c}, leaving out those on its boundary.",
    "On squared paper a triangle is drawn from {a} to {b} to {c}. How many crossings of the paper lie inside it, not on its edges?",
    answer="Answer with one integer.",
    a=r"\(-?\d+, -?\d+\)",
    b=r"\(-?\d+, -?\d+\)",
    c=r"\(-?\d+, -?\d+\)",
)
Spec = list[tuple[int, int]]


def lattice_points(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="lattice_points",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int) -> tuple[str, Spec]:
    while True:
        corners = [(rng.randint(-size, size), rng.randint(-size, size)) for _ in range(3)]
        if interior(corners) >= size:
            return str(sorted(corners)), corners


def interior(corners: Spec) -> int:
    (a, b), (c, d), (e, f) = corners
    twice = abs((c - a) * (f - b) - (e - a) * (d - b))
    edge = gcd(c - a, d - b) + gcd(e - c, f - d) + gcd(a - e, b - f)
    return (twice - edge + 2) // 2


def pose(spec: Spec) -> dict[str, Any]:
    a, b, c = (f"({x}, {y})" for x, y in spec)
    return {
        "prompt": WORDINGS.write(a=a, b=b, c=c),
        "answer": str(interior(spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    p, q, r = (tuple(int(x) for x in read[name].strip("()").split(", ")) for name in "abc")
    inside = 0
    for x in range(min(p[0], q[0], r[0]), max(p[0], q[0], r[0]) + 1):
        for y in range(min(p[1], q[1], r[1]), max(p[1], q[1], r[1]) + 1):
            signs = {
                (t[0] - s[0]) * (y - s[1]) > (t[1] - s[1]) * (x - s[0])
                if (t[0] - s[0]) * (y - s[1]) != (t[1] - s[1]) * (x - s[0])
                else None
                for s, t in ((p, q), (q, r), (r, p))
            }
            inside += len(signs) == 1 and None not in signs
    return str(inside)
