"""The area that overlapping rectangles cover together.

Certificate: inclusion and exclusion of the overlaps against unit squares counted from the text. Difficulty axes:
rectangles, size of the coordinates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"rectangles": 2, "size": 8},
    {"rectangles": 3, "size": 10},
    {"rectangles": 4, "size": 14},
    {"rectangles": 6, "size": 18},
)
CERTIFICATE = ("inclusion and exclusion", "unit squares counted from the text")
WORDINGS = Wordings(
    "Rectangles are given by two opposite corners: {boxes}. What area do they cover together?",
    "Find the area of the union of the rectangles {boxes}, each given by two opposite corners.",
    "Carpets lie on the floor, each with its sides parallel to the axes and given by two opposite corners: {boxes}. How large is the part of the floor that is covered?",
    "Each of {boxes} is a rectangle with sides parallel to the axes, named by two opposite corners. Compute the total area covered at least once.",
    "What is the area of the region that lies in at least one of the rectangles {boxes} (lower left and upper right corners)?",
    answer="Overlaps count once. Answer with one integer.",
    boxes=r"\(\d+, \d+\)-\(\d+, \d+\)(?:, \(\d+, \d+\)-\(\d+, \d+\))+",
)
Spec = list[tuple[int, int, int, int]]


def rectangle_unions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="rectangle_unions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rectangles: int, size: int) -> tuple[str, Spec]:
    spec = []
    for _ in range(rectangles):
        (a, c), (b, d) = sorted(rng.sample(range(size + 1), 2)), sorted(rng.sample(range(size + 1), 2))
        spec.append((a, b, c, d))
    return f"{sorted(spec)}", spec


def pose(spec: Spec) -> dict[str, Any]:
    total = 0
    for k in range(1, len(spec) + 1):
        for some in combinations(spec, k):
            wide = min(s[2] for s in some) - max(s[0] for s in some)
            high = min(s[3] for s in some) - max(s[1] for s in some)
            total += (-1) ** (k + 1) * max(wide, 0) * max(high, 0)
    return {
        "prompt": WORDINGS.write(boxes=", ".join(f"({a}, {b})-({c}, {d})" for a, b, c, d in spec)),
        "answer": str(total),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    numbers = [int(n) for n in re.findall(r"\d+", WORDINGS.read(question)["boxes"])]
    covered = set()
    for i in range(0, len(numbers), 4):
        a, b, c, d = numbers[i : i + 4]
        for x in range(a, c):
            for y in range(b, d):
                covered.add((x, y))
    return str(len(covered))
