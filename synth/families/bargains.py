"""What is the best profit of a seller whose buyer raises the offer a few times, and then leaves?

A world for negotiation (Sotopia-RL, arXiv 2508.03905; EPO, arXiv 2502.12486). Certificate: the sum of the raises
against a buyer who is played out from the text, for every number of times that the seller can hold. Difficulty axes:
raises, size of the numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"raises": 2, "size": 20}, {"raises": 4, "size": 40}, {"raises": 6, "size": 90}, {"raises": 9, "size": 500})
CERTIFICATE = ("the sum of the raises", "a buyer played out from the text")
_TEXT = re.compile(
    r"You sell what cost you (\d+)\. The buyer offers (\d+), adds (\d+) each time you hold, at most (\d+) times, and then leaves\. "
    r"What is your best profit\?"
)


def bargains(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the profit. `levels` are the levels to draw from; env "bargain" has it
    played in turns (training/env/bargain.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="bargains",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, raises: int, size: int) -> tuple[str, tuple[int, int, int, int]]:
    cost, step, times = rng.randint(2, size), rng.randint(1, 9), rng.randint(1, raises)
    spec = cost, rng.randint(max(1, cost - 2 * step), cost + size // 4), step, times
    return " ".join(map(str, spec)), spec


def pose(spec: tuple[int, int, int, int]) -> dict[str, Any]:
    cost, offer, step, times = spec
    return {
        "prompt": f"You sell what cost you {cost}. The buyer offers {offer}, adds {step} each time you hold, at most {times} times, and then "
        "leaves. What is your best profit?",
        "answer": str(max(0, offer + step * times - cost)),
        "verifier": "number",
    }


def solve(question: str) -> str:
    cost, offer, step, times = map(int, parsed(_TEXT, question).groups())
    best = 0
    for held in range(times + 2):
        now, left = offer, times
        for _ in range(held):
            now, left = (now + step, left - 1) if left else (cost, 0)
        best = max(best, now - cost)
    if times > 99:
        raise Refused("roundtrip: a buyer is never that patient")
    return str(best)
