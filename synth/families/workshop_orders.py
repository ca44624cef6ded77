"""The earliest end of jobs that pass two machines, one after the other.

Certificate: Johnson's rule on the values against all orders of the text. Difficulty axes: jobs, size of the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"jobs": 3, "size": 9}, {"jobs": 4, "size": 12}, {"jobs": 5, "size": 20}, {"jobs": 6, "size": 40})
CERTIFICATE = ("Johnson's rule", "all orders of the text")
WORDINGS = Wordings(
    "Shirts are washed and then ironed; there is one washer and one iron. Minutes for each: {rows}. After how many minutes can all be done at the earliest?",
    "Each job goes through machine 1 and then machine 2, each of which handles one job at a time. Times on the two: {rows}. What is the shortest total time until all jobs are finished?",
    "Parts are first cut and then painted, with one saw and one paint shop. Times: {rows}. Find the least time in which all parts can be finished.",
    "In a two-machine flow shop the jobs take {rows} (first machine, second machine). What is the smallest makespan?",
    "Cakes are baked and then iced, in one oven that takes a single cake and by one baker: {rows}. What is the earliest time at which the last cake is ready?",
    answer="Answer with one integer.",
    rows=r"[A-Z] \d+ and \d+(?:, [A-Z] \d+ and \d+)*",
)
Spec = list[tuple[str, int, int]]


def workshop_orders(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="workshop_orders",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, jobs: int, size: int) -> tuple[str, Spec]:
    spec = [(name, rng.randint(1, size), rng.randint(1, size)) for name in "ABCDEF"[:jobs]]
    return f"{sorted(row[1:] for row in spec)}", spec


def pose(spec: Spec) -> dict[str, Any]:
    early = sorted((row for row in spec if row[1] < row[2]), key=lambda row: row[1])
    late = sorted((row for row in spec if row[1] >= row[2]), key=lambda row: -row[2])
    first = second = 0
    for _, a, b in [*early, *late]:
        first += a
        second = max(first, second) + b
    return {
        "prompt": WORDINGS.write(rows=", ".join(f"{name} {a} and {b}" for name, a, b in spec)),
        "answer": str(second),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": f"In the order {' '.join(name for name, _, _ in [*early, *late])}.",
    }


def solve(question: str) -> str:
    numbers = integers(WORDINGS.read(question)["rows"])
    rows = list(zip(numbers[::2], numbers[1::2], strict=True))
    ends = []
    for order in permutations(rows):
        free = [0, 0]
        for a, b in order:
            free[0] += a
            free[1] = max(free) + b
        ends.append(free[1])
    return str(min(ends))
