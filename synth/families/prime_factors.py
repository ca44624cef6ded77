"""The prime factors of an integer, smallest first.

Certificate: the number is a product of drawn primes; from the text they come back by trial division. Difficulty axes:
how many factors, their size.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"factors": 3, "size": 13},
    {"factors": 4, "size": 31},
    {"factors": 5, "size": 60},
    {"factors": 4, "size": 400},
)
CERTIFICATE = ("product of drawn primes", "trial division of the number in the text")
PRIMES = [p for p in range(2, 400) if all(p % d for d in range(2, int(p**0.5) + 1))]
WORDINGS = Wordings(
    "Write {n} as a product of primes.",
    "Find the prime factors of {n}.",
    "Which primes give {n} when they are multiplied?",
    "Break {n} down into primes.",
    "What is the prime factorisation of {n}?",
    answer="Answer with all prime factors, smallest first, each as often as it occurs, parted by spaces.",
    n=r"\d+",
)


def prime_factors(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the factors in rising order. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="prime_factors",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, factors: int, size: int) -> tuple[str, list[int]]:
    small = [p for p in PRIMES if p <= size]
    chosen = sorted(rng.choice(small) for _ in range(rng.randint(factors - 1, factors)))
    return str(prod(chosen)), chosen


def pose(chosen: list[int]) -> dict[str, Any]:
    rest, steps = prod(chosen), []
    for p in chosen[:-1]:
        steps.append(f"{rest} / {p} = {rest // p}")
        rest //= p
    return {
        "prompt": WORDINGS.write(n=prod(chosen)),
        "answer": " ".join(map(str, chosen)),
        "verifier": "ordered_list",
        "working": ", ".join(steps),
    }


def factors(number: int) -> list[int]:
    """Prime factors in rising order by trial division: at most sqrt(number) steps."""
    out, d = [], 2
    while d * d <= number:
        while number % d == 0:
            out.append(d)
            number //= d
        d += 1
    return out + [number] * (number > 1)


def solve(question: str) -> str:
    return " ".join(map(str, factors(int(WORDINGS.read(question)["n"]))))
