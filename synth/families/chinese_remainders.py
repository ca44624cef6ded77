"""The smallest positive number that leaves given remainders.

Certificate: the drawn number, below the product of moduli without common divisors, against a sieve over the text.
Difficulty axes: moduli, their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"moduli": 2, "size": 9}, {"moduli": 3, "size": 9}, {"moduli": 3, "size": 16}, {"moduli": 4, "size": 16})
CERTIFICATE = ("the drawn number", "a sieve over the text")
WORDINGS = Wordings(
    "What is the smallest positive whole number that leaves {rules}?",
    "Find the least positive integer that leaves {rules}.",
    "A positive whole number leaves {rules}. What is the smallest that it can be?",
    "Some positive whole numbers leave {rules}. Which is the smallest of them?",
    "Coins in a box, counted in groups, leave {rules}. There is at least one coin. What is the least possible number of coins?",
    answer="Answer with one integer.",
    rules=r"[a-z\d, ]+",
)
Spec = tuple[int, list[int]]


def chinese_remainders(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="chinese_remainders",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, moduli: int, size: int) -> tuple[str, Spec]:
    chosen: list[int] = []
    while len(chosen) < moduli:
        m = rng.randint(3, size)
        if all(gcd(m, other) == 1 for other in chosen):
            chosen.append(m)
        elif rng.random() < 0.05:
            chosen.clear()
    x = rng.randint(max(chosen), prod(chosen))
    return f"{x} {sorted(chosen)}", (x, chosen)


def pose(spec: Spec) -> dict[str, Any]:
    x, moduli = spec
    rules = listed([f"remainder {x % m} when divided by {m}" for m in moduli])
    return {"prompt": WORDINGS.write(rules=rules), "answer": str(x), "verifier": "number", "args": {"kind": "integer"}}


def solve(question: str) -> str:
    numbers = integers(WORDINGS.read(question)["rules"])
    x, step = 0, 1
    for rest, m in sorted(zip(numbers[::2], numbers[1::2], strict=True), key=lambda rule: rule[1]):
        while x % m != rest:
            x += step
        step *= m
    return str(x or step)
