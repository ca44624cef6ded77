"""What is the best profit of a seller whose buyer raises the offer a few times, and then leaves?

A world for negotiation (Sotopia-RL, arXiv 2508.03905; EPO, arXiv 2502.12486). Certificate: the sum of the raises
against a buyer who is played out from the text, for every number of times that the seller can hold. Difficulty axes:
raises, size of the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"raises": 2, "size": 20}, {"raises": 4, "size": 40}, {"raises": 6, "size": 90}, {"raises": 9, "size": 500})
CERTIFICATE = ("the sum of the raises", "a buyer played out from the text")
FIELDS = ("cost", "offer", "step", "times")
WORDINGS = Wordings(
    "You sell what cost you {cost}. The buyer offers {offer}, adds {step} each time you hold, at most {times} times, and then leaves. What is your best profit?",
    "A buyer offers {offer} for what cost you {cost}. Each time you hold, the buyer adds {step}, at most {times} times, and then leaves. How much can you earn?",
    "How much profit can you make? What you sell cost you {cost}. The buyer offers {offer}, adds {step} when you hold, at most {times} times, and then leaves.",
    "A buyer offers {offer}. Hold, and the buyer adds {step}, but at most {times} times, and then leaves. What you sell cost you {cost}. What is your best profit?",
    "For a thing that cost you {cost} a buyer offers {offer} and, each time you hold, adds {step}, at most {times} times, before leaving. What is the highest profit?",
    answer="Answer with a number, which is 0 where no sale pays.",
    **dict.fromkeys(FIELDS, "[0-9]+"),
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
        "prompt": WORDINGS.write(cost=cost, offer=offer, step=step, times=times),
        "answer": str(max(0, offer + step * times - cost)),
        "verifier": "number",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    cost, offer, step, times = (int(fields[name]) for name in FIELDS)
    best = 0
    for held in range(times + 2):
        now, left = offer, times
        for _ in range(held):
            now, left = (now + step, left - 1) if left else (cost, 0)
        best = max(best, now - cost)
    if times > 99:
        raise Refused("roundtrip: a buyer is never that patient")
    return str(best)
