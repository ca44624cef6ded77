"""Count the ways to seat guests who refuse some seats.

Certificate: inclusion and exclusion over refused seats against orders tried one by one from the text. Difficulty
axes: guests, most refusals.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import NAMES, Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"guests": 4, "refusals": 5},
    {"guests": 5, "refusals": 6},
    {"guests": 6, "refusals": 8},
    {"guests": 7, "refusals": 12},
)
CERTIFICATE = ("inclusion and exclusion", "seats filled one by one from the text")
WORDINGS = Wordings(
    "{names} take the seats 1 to {n}, one each. {rules}. In how many ways can they sit?",
    "The seats 1 to {n} are given to {names}, one seat to each. {rules}. Count the possible seatings.",
    "There are {n} numbered seats, 1 to {n}, for {names}. {rules}. How many different seatings are there?",
    "{names} sit down on {n} chairs numbered from 1 to {n}. {rules}. Find the number of ways to do this.",
    "How many ways are there to put {names} on the chairs 1 to {n}, one on each, if the following holds? {rules}.",
    answer="Answer with one integer.",
    names="[A-Za-z, ]+",
    rules=r"[A-Za-z\d, .]+?",
)
Spec = list[list[int]]  # the seats that each guest refuses


def seat_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="seat_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, guests: int, refusals: int) -> tuple[str, Spec]:
    """From half of `refusals` to all of them, so that no number of ways is by far the most common."""
    every = [(g, s) for g in range(guests) for s in range(1, guests + 1)]
    while True:
        pairs = rng.sample(every, rng.randint(refusals // 2, refusals))
        spec = [sorted(s for g, s in pairs if g == who) for who in range(guests)]
        if ways(spec) > 1:
            return f"{spec}", spec


def ways(refused: Spec) -> int:
    """All orders, less those with one refused seat taken, and so on: k such seats leave (n - k)! orders."""
    rooks = {0: 1}  # bits of refused seats taken -> ways
    for seats in refused:
        rooks = _with(rooks, seats)
    n = len(refused)
    return sum((-1) ** m.bit_count() * c * factorial(n - m.bit_count()) for m, c in rooks.items())


def _with(rooks: dict[int, int], seats: Sequence[int]) -> dict[int, int]:
    out = dict(rooks)
    for taken, c in rooks.items():
        for s in seats:
            if not taken >> s & 1:
                out[taken | 1 << s] = out.get(taken | 1 << s, 0) + c
    return out


def pose(spec: Spec) -> dict[str, Any]:
    rules = [f"{NAMES[i]} refuses {listed([str(s) for s in seats], 'and')}" for i, seats in enumerate(spec) if seats]
    return {
        "prompt": WORDINGS.write(names=listed(list(NAMES[: len(spec)])), n=len(spec), rules=". ".join(rules)),
        "answer": str(ways(spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    guests = fields["names"].replace(" and ", ", ").split(", ")
    refused = {rule.split()[0]: integers(rule) for rule in fields["rules"].split(". ")}

    def seated(i: int, free: list[int]) -> int:
        if i == len(guests):
            return 1
        return sum(seated(i + 1, [x for x in free if x != s]) for s in free if s not in refused.get(guests[i], ()))

    return str(seated(0, list(range(1, int(fields["n"]) + 1))))
