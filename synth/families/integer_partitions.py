"""In how many ways a number is a sum of parts, with bounds on the parts.

Certificate: a table over parts on the values against a recursion that lists every sum. Difficulty axes: size of the number, number of parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 15, "least": 9}, {"size": 18, "least": 13}, {"size": 25, "least": 19}, {"size": 32, "least": 26})
CERTIFICATE = ("a table over parts", "a recursion that lists every sum")
WORDINGS = Wordings(
    "In how many ways can {n} be written as a sum of positive integers, none greater than {m}, at most {k} of them, order ignored?",
    "Count the partitions of {n} into at most {k} positive parts of which none exceeds {m}.",
    "{n} identical coins are put into heaps of at most {m} coins each. How many ways are there if at most {k} heaps are allowed and only the sizes of the heaps matter?",
    "How many unordered sums of positive whole numbers make {n}, with at most {k} terms and every term at most {m}?",
    "Find the number of ways to split {n} into no more than {k} positive whole numbers, each no more than {m}, where the order does not count.",
    answer="Answer with one integer.",
)
QUESTIONS = 20
Spec = tuple[int, int, int]


def integer_partitions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="integer_partitions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, least: int) -> tuple[str, Spec]:
    """All numbers of ways among the questions drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec]:
        n = rng.randint(least, size)
        spec = n, rng.randint(3, n // 2), rng.randint(3, n // 2)
        ways = count(*spec)
        return (ways if ways > 3 else None), spec

    spec = by_answer(rng, once, QUESTIONS)
    return " ".join(map(str, spec)), spec


def count(n: int, m: int, k: int) -> int:
    """table[j][s]: the sums s of j parts, the parts taken in order of size."""
    table = [[int(j == s == 0) for s in range(n + 1)] for j in range(k + 1)]
    for part in range(1, m + 1):
        for j in range(1, k + 1):
            for s in range(part, n + 1):
                table[j][s] += table[j - 1][s - part]
    return sum(row[n] for row in table)


def pose(spec: Spec) -> dict[str, Any]:
    n, m, k = spec
    return {
        "prompt": WORDINGS.write(n=n, m=m, k=k),
        "answer": str(count(n, m, k)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)

    def sums(rest: int, largest: int, left: int) -> int:
        if rest == 0:
            return 1
        if left == 0 or largest * left < rest:
            return 0
        return sum(sums(rest - part, part, left - 1) for part in range(1, min(rest, largest) + 1))

    return str(sums(int(read["n"]), int(read["m"]), int(read["k"])))
