"""The best-paid choice of bookings that do not overlap.

Certificate: a table over ends on the values against all choices of the text. Difficulty axes: bookings, hours, size
of the fees.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"bookings": 4, "hours": 10, "fee": 9},
    {"bookings": 6, "hours": 14, "fee": 20},
    {"bookings": 8, "hours": 20, "fee": 50},
    {"bookings": 10, "hours": 24, "fee": 90},
)
CERTIFICATE = ("a table over ends", "all choices of the text")
WORDINGS = Wordings(
    "A hall can be let for these hours at these fees: {rows}. What is the highest total of fees from bookings that do not overlap?",
    "Requests for one machine, with hours and pay: {rows}. Which total pay is the best if no two accepted requests overlap?",
    "Choose among the bookings {rows} some that do not overlap, to earn as much as possible. What do they earn?",
    "A guide is offered the tours {rows}. She can lead one at a time. What is the most she can earn?",
    "Find the greatest total weight of pairwise disjoint intervals among {rows}.",
    answer="One may begin in the hour in which another ends. Answer with one integer.",
    rows=r"\d+-\d+ for \d+(?:, \d+-\d+ for \d+)*",
)
Spec = list[tuple[int, int, int]]


def booking_choices(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="booking_choices",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, bookings: int, hours: int, fee: int) -> tuple[str, Spec]:
    spec = []
    for _ in range(bookings):
        start, end = sorted(rng.sample(range(hours + 1), 2))
        spec.append((start, min(end, start + hours // 2), rng.randint(1, fee)))
    return f"{sorted(spec)}", spec


def pose(spec: Spec) -> dict[str, Any]:
    best = [0] * (max(end for _, end, _ in spec) + 1)
    for hour in range(1, len(best)):
        best[hour] = max([best[hour - 1], *(best[start] + fee for start, end, fee in spec if end == hour)])
    return {
        "prompt": WORDINGS.write(rows=", ".join(f"{a}-{b} for {fee}" for a, b, fee in spec)),
        "answer": str(best[-1]),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    rows = [tuple(map(int, row)) for row in re.findall(r"(\d+)-(\d+) for (\d+)", WORDINGS.read(question)["rows"])]

    def most(i: int, taken: list[tuple[int, ...]]) -> int:
        if i == len(rows):
            return sum(fee for _, _, fee in taken)
        start, end, _ = rows[i]
        best = most(i + 1, taken)
        if all(end <= a or b <= start for a, b, _ in taken):
            best = max(best, most(i + 1, [*taken, rows[i]]))
        return best

    return str(most(0, []))
