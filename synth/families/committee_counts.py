"""Count the committees with enough members of each of two groups.

Certificate: a sum of products of binomials against a table filled person by person from the text. Difficulty axes:
persons, members.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"persons": 6, "members": 4},
    {"persons": 7, "members": 4},
    {"persons": 9, "members": 5},
    {"persons": 14, "members": 7},
)
CERTIFICATE = ("products of binomials", "a table filled person by person")
WORDINGS = Wordings(
    "A committee of {k} is chosen from {a} women and {b} men. In how many ways can this be done if it must hold at least {x} of the women and at least {y} of the men?",
    "From {a} women and {b} men, how many different teams of {k} people can be formed that hold at least {x} of the women and at least {y} of the men?",
    "A choir has {a} women and {b} men, and {k} of them travel. Count the possible groups of travellers with no fewer than {x} of the women and no fewer than {y} of the men.",
    "There are {a} women and {b} men in a club. Find the number of ways to pick {k} of them, the order not mattering, with at least {x} of the women and at least {y} of the men.",
    "At least {x} of {a} women and at least {y} of {b} men are to be in a group of {k} people. How many such groups are there?",
    answer="Answer with one integer.",
)
Spec = tuple[int, int, int, int, int]


def committee_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="committee_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, persons: int, members: int) -> tuple[str, Spec]:
    a, b = rng.randint(members, 2 * persons), rng.randint(members, 2 * persons)
    k = rng.randint(members - 1, members)
    x = rng.randint(1, k - 1)
    y = rng.randint(1, k - x)
    return f"{k} {sorted([(a, x), (b, y)])}", (a, b, k, x, y)


def pose(spec: Spec) -> dict[str, Any]:
    a, b, k, x, y = spec
    parts = [comb(a, i) * comb(b, k - i) for i in range(x, k - y + 1)]
    return {
        "prompt": WORDINGS.write(a=a, b=b, k=k, x=x, y=y),
        "answer": str(sum(parts)),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": " + ".join(map(str, parts)),
    }


def solve(question: str) -> str:
    a, b, k, x, y = (int(WORDINGS.read(question)[name]) for name in "abkxy")
    ways = {(0, 0): 1}  # (women, men) -> ways to choose them
    for person in range(a + b):
        for (women, men), n in list(ways.items()):
            more = (women + 1, men) if person < a else (women, men + 1)
            if sum(more) <= k:
                ways[more] = ways.get(more, 0) + n
    return str(sum(n for (women, men), n in ways.items() if women + men == k and women >= x and men >= y))
