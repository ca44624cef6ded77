"""The most valuable load that a bag can hold.

Certificate: a table over weights on the values against all choices of the text. Difficulty axes: things, size of
weights and values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"things": 4, "size": 9}, {"things": 5, "size": 15}, {"things": 7, "size": 25}, {"things": 9, "size": 40})
CERTIFICATE = ("a table over weights", "all choices of the text")
WORDINGS = Wordings(
    "A bag holds at most {w} kg. Things with weight and worth: {things}. What is the greatest total worth that it can hold?",
    "You may carry {w} kg. The things at hand are {things}. What is the most that your load can be worth?",
    "A thief's sack takes up to {w} kg, and the loot is {things}. What is the largest worth he can carry away?",
    "Choose among {things} so that the total weight is no more than {w} kg and the total worth is as large as possible. What is that worth?",
    "A drone lifts no more than {w} kg. From {things}, find the greatest worth of a load.",
    answer="Each thing is taken whole or left. Answer with one integer.",
    things=r"[a-z]+ \d+ kg worth \d+(?:, [a-z]+ \d+ kg worth \d+)*",
)
THINGS = ("lamp", "clock", "vase", "radio", "tent", "drum", "globe", "kettle", "statue", "mirror", "saddle", "anvil")
Spec = tuple[int, list[tuple[str, int, int]]]


def knapsacks(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="knapsacks",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, things: int, size: int) -> tuple[str, Spec]:
    names = rng.sample(THINGS, things)
    rows = [(name, rng.randint(1, size), rng.randint(1, size)) for name in names]
    total = sum(weight for _, weight, _ in rows)
    limit = rng.randint(max(weight for _, weight, _ in rows), max(total - 1, max(w for _, w, _ in rows)))
    return f"{sorted((w, v) for _, w, v in rows)} {limit}", (limit, rows)


def pose(spec: Spec) -> dict[str, Any]:
    limit, rows = spec
    best = [0] * (limit + 1)
    for _, weight, value in rows:
        for room in range(limit, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return {
        "prompt": WORDINGS.write(w=limit, things=", ".join(f"{n} {w} kg worth {v}" for n, w, v in rows)),
        "answer": str(best[limit]),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    rows = [(int(w), int(v)) for w, v in re.findall(r"(\d+) kg worth (\d+)", fields["things"])]

    def most(i: int, room: int) -> int:
        if i == len(rows):
            return 0
        weight, value = rows[i]
        left = most(i + 1, room)
        return max(left, value + most(i + 1, room - weight)) if weight <= room else left

    return str(most(0, int(fields["w"])))
