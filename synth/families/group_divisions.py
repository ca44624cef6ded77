"""In how many ways people form groups that nobody tells apart, none smaller than a bound.

Certificate: choosing the companions of the first on the values against counting the sizes of groups. Difficulty axes: number of people, number of groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import comb, factorial, prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"people": 10}, {"people": 14}, {"people": 18}, {"people": 24})
CERTIFICATE = ("choosing the companions of the first", "counting the sizes of groups")
WORDINGS = Wordings(
    "In how many ways can {n} people form {k} groups of {m} to {l} people each?",
    "{n} children split into {k} teams, every team of {m} to {l}. The teams have no names. How many divisions are there?",
    "Count the ways to put {n} different books into {k} equal boxes that cannot be told apart, with {m} to {l} in every box.",
    "How many partitions of a set of {n} elements have exactly {k} blocks, each with {m} to {l} elements?",
    "A class of {n} students is divided into {k} unnamed study groups with {m} to {l} students in each. In how many ways is this possible?",
    answer="Answer with one integer.",
)
Spec = tuple[int, int, int, int]


def group_divisions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="group_divisions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, people: int) -> tuple[str, Spec]:
    while True:
        n = rng.randint(people - 4, people)
        least = rng.choice((1, 1, 2, 3))
        spec = n, rng.randint(2, n // 2), least, rng.randint(least + 1, n - 2)
        if count(*spec) > 1:
            return " ".join(map(str, spec)), spec


@cache
def count(n: int, k: int, m: int, most: int) -> int:
    if k == 0:
        return int(n == 0)
    return sum(comb(n - 1, size - 1) * count(n - size, k - 1, m, most) for size in range(m, min(most, n) + 1))


def pose(spec: Spec) -> dict[str, Any]:
    n, k, m, most = spec
    return {
        "prompt": WORDINGS.write(n=n, k=k, m=m, l=most),
        "answer": str(count(n, k, m, most)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    n, k, m, most = (int(WORDINGS.read(question)[name]) for name in "nkml")

    def sizes(rest: int, groups: int, least: int) -> list[list[int]]:
        if groups == 1:
            return [[rest]] if least <= rest <= most else []
        return [
            [s, *more] for s in range(least, min(most, rest // groups) + 1) for more in sizes(rest - s, groups - 1, s)
        ]

    total = 0
    for some in sizes(n, k, m):
        alike = prod(factorial(some.count(s)) for s in set(some))
        total += factorial(n) // (prod(map(factorial, some)) * alike)
    return str(total)
