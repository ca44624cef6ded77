"""Count the multiples of some numbers that are no multiples of others.

Certificate: inclusion and exclusion with least common multiples against a count over the text's range. Difficulty
axes: range, numbers named, numbers left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import lcm
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"upto": 60, "named": 1, "without": 1},
    {"upto": 150, "named": 2, "without": 0},
    {"upto": 300, "named": 2, "without": 1},
    {"upto": 900, "named": 3, "without": 2},
)
CERTIFICATE = ("inclusion and exclusion", "a count over the text's range")
WORDINGS = Wordings(
    "How many whole numbers from 1 to {n}, both included, are multiples of {named}?",
    "Count the whole numbers from 1 to {n} inclusive that are multiples of {named}.",
    "Among the numbers 1, 2, ..., {n}, find the number of those that are multiples of {named}.",
    "The lockers 1 to {n} are numbered in order. What is the number of lockers whose numbers are multiples of {named}?",
    "Tickets numbered from 1 to {n}, both ends included, are printed. A ticket wins if its number is among the multiples of {named}. What is the number of winning tickets?",
    answer="A multiple of more than one of the named numbers counts once. Answer with one integer.",
    named=r"[\d, ]+(?:or \d+)?(?: but not of [\d, ]+(?:or \d+)?)?",
)
Spec = tuple[int, list[int], list[int]]


def counting_multiples(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="counting_multiples",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, upto: int, named: int, without: int) -> tuple[str, Spec]:
    while True:
        n, chosen = rng.randint(upto // 2, upto), rng.sample(range(3, 16), named + without)
        some, none = sorted(chosen[:named]), sorted(chosen[named:])
        if all(a % b for a in some for b in none) and all(a % b for a in some for b in some if a != b):
            return f"{n} {some} {none}", (n, some, none)


def counted(n: int, some: Sequence[int], none: Sequence[int]) -> int:
    """How many of 1 to n are multiples of one of `some` and of none of `none`."""
    total = 0
    for picked in range(1, len(some) + 1):
        for a in combinations(some, picked):
            for left in range(len(none) + 1):
                total += sum((-1) ** (picked + 1 + left) * (n // lcm(*a, *b)) for b in combinations(none, left))
    return total


def pose(spec: Spec) -> dict[str, Any]:
    n, some, none = spec
    text = listed([str(k) for k in some], "or") + (
        f" but not of {listed([str(k) for k in none], 'or')}" if none else ""
    )
    return {
        "prompt": WORDINGS.write(n=n, named=text),
        "answer": str(counted(n, some, none)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    some, _, none = fields["named"].partition(" but not of ")
    left = 0
    for x in range(1, int(fields["n"]) + 1):
        if any(x % k == 0 for k in integers(some)) and all(x % k for k in integers(none)):
            left += 1
    return str(left)
