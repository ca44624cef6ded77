"""How much of a line some intervals cover, or how much is covered more than once.

Certificate: the ends in order on the values against every unit counted from the text. Difficulty axes: number of intervals, length of the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"n": 3, "line": 20}, {"n": 5, "line": 40}, {"n": 8, "line": 70}, {"n": 12, "line": 120})
CERTIFICATE = ("the ends in order", "every unit counted from the text")
WORDINGS = Wordings(
    "What is the total length that at least {k} of the intervals {some} cover?",
    "The intervals {some} are marked on a line. How long is the part that lies in {k} or more of them?",
    "Guards stand watch during the hours {some}. For how many hours are at least {k} of them there?",
    "Machines run from start to end as in {some}. Find the length of time during which {k} or more run at once.",
    "Strips of paper lie on a ruler at {some}. What length of the ruler has at least {k} layers of paper on it?",
    answer="Answer with one integer.",
    some=r"\d+ to \d+(?:, \d+ to \d+)+",
)
Spec = tuple[int, list[tuple[int, int]]]


def interval_unions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="interval_unions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, n: int, line: int) -> tuple[str, Spec]:
    while True:
        some = [tuple(sorted(rng.sample(range(line + 1), 2))) for _ in range(n)]
        spec = rng.randint(1, max(2, n // 3)), [(a, b) for a, b in some]
        if covered(*spec):
            return f"{spec[0]} {sorted(spec[1])}", spec


def covered(k: int, some: list[tuple[int, int]]) -> int:
    total = open_ = last = 0
    for at, step in sorted([(a, 1) for a, _ in some] + [(b, -1) for _, b in some]):
        total += (at - last) * (open_ >= k)
        open_, last = open_ + step, at
    return total


def pose(spec: Spec) -> dict[str, Any]:
    k, some = spec
    return {
        "prompt": WORDINGS.write(k=k, some=", ".join(f"{a} to {b}" for a, b in some)),
        "answer": str(covered(k, some)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    layers: dict[int, int] = {}
    for a, b in re.findall(r"(\d+) to (\d+)", read["some"]):
        for unit in range(int(a), int(b)):
            layers[unit] = layers.get(unit, 0) + 1
    return str(sum(n >= int(read["k"]) for n in layers.values()))
