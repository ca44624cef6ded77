"""Count the shortest ways through a city of square blocks with closed crossings.

Certificate: binomials, less the ways whose first closed crossing is each of them, against a table filled from the
text. Difficulty axes: width, height, closed crossings.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"width": 4, "height": 3, "closed": 1},
    {"width": 5, "height": 4, "closed": 2},
    {"width": 6, "height": 6, "closed": 4},
    {"width": 9, "height": 8, "closed": 6},
)
CERTIFICATE = ("binomials and first closed crossings", "a table filled from the text")
WORDINGS = Wordings(
    "In how many ways can you walk from (0, 0) to ({w}, {h}) with steps of 1 to the right or 1 up, never through {closed}?",
    "A robot at (0, 0) moves one unit right or one unit up at a time. How many routes lead to ({w}, {h}) without touching {closed}?",
    "Streets form a square grid. Going only right or up, how many routes lead from the crossing (0, 0) to ({w}, {h}) if these crossings are closed: {closed}?",
    "Count the lattice paths from (0, 0) to ({w}, {h}) with unit steps right and up that avoid {closed}.",
    "Find the number of paths from (0, 0) to ({w}, {h}) made of unit steps to the right and unit steps up that pass through none of these points: {closed}.",
    answer="Answer with one integer.",
    closed=r"[(\d, )and]+",
)
GRIDS = 40
Spec = tuple[int, int, list[tuple[int, int]]]


def lattice_paths(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="lattice_paths",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, width: int, height: int, closed: int) -> tuple[str, Spec]:
    """All numbers of ways among the grids drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec]:
        w, h = rng.randint(width - 1, width), rng.randint(height - 1, height)
        inner = [(x, y) for x in range(w + 1) for y in range(h + 1) if (x, y) not in ((0, 0), (w, h))]
        points = sorted(rng.sample(inner, closed))
        count = ways(w, h, points)
        return (count if count > 1 else None), (w, h, points)

    w, h, points = by_answer(rng, once, GRIDS)
    return f"{w} {h} {points}", (w, h, points)


def ways(w: int, h: int, closed: Sequence[tuple[int, int]]) -> int:
    """All paths, less those whose first closed point is each one; the points are sorted."""
    first: list[int] = []
    for x, y in [*closed, (w, h)]:
        free = comb(x + y, x)
        for (a, b), n in zip(closed, first, strict=False):
            if a <= x and b <= y:
                free -= n * comb(x - a + y - b, x - a)
        first.append(free)
    return first[-1]


def pose(spec: Spec) -> dict[str, Any]:
    w, h, closed = spec
    return {
        "prompt": WORDINGS.write(w=w, h=h, closed=listed([f"({x}, {y})" for x, y in closed])),
        "answer": str(ways(w, h, closed)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    numbers = integers(fields["closed"])
    closed = set(zip(numbers[::2], numbers[1::2], strict=True))
    row = [1] + [0] * int(fields["w"])
    for y in range(int(fields["h"]) + 1):
        for x in range(len(row)):
            row[x] = 0 if (x, y) in closed else row[x] + (row[x - 1] if x else 0)
    return str(row[-1])
