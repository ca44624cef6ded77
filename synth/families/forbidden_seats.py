"""In how many ways people take seats when some seats are refused.

Certificate: inclusion and exclusion on the values against every seating tried from the text. Difficulty axes: number of people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations, permutations
from math import prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, NAMES, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"people": 4}, {"people": 5}, {"people": 6}, {"people": 7})
CERTIFICATE = ("inclusion and exclusion", "every seating tried from the text")
WORDINGS = Wordings(
    "{who} take the seats 1 to {n}, one each. {refused}. In how many ways can they sit?",
    "The seats 1 to {n} are for {who}, one seat for each. {refused}. Count the seatings.",
    "In how many orders can {who} fill the places 1 to {n}, one person on each, if {refused}?",
    "{who} are to be seated on {n} chairs with the numbers 1 to {n}. {refused}. How many seatings are allowed?",
    "How many ways are there to seat {who} on chairs 1 to {n}, nobody sharing a chair, when {refused}?",
    answer="Answer with one integer.",
    who=r"[A-Z][a-z]+(?:, [A-Z][a-z]+)* and [A-Z][a-z]+",
    refused=r"[A-Z][A-Za-z\d, ;]+",
)
Spec = tuple[list[str], dict[str, list[int]]]


def forbidden_seats(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="forbidden_seats",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, people: int) -> tuple[str, Spec]:
    who: list[str] = sorted(map(str, rng.sample(NAMES, people)))
    while True:
        refused = {x: sorted(rng.sample(range(1, people + 1), rng.randint(0, people - 2))) for x in who}
        if count(who, refused) > 1 and sum(map(bool, refused.values())) > 1:
            return f"{sorted(map(tuple, refused.values()))}", (who, refused)


def count(who: list[str], refused: dict[str, list[int]]) -> int:
    """Seatings by Ryser's formula: over sets of seats that stay empty."""
    n = len(who)
    total = 0
    for size in range(n + 1):
        for empty in combinations(range(1, n + 1), size):
            total += (-1) ** size * prod(n - len({*refused[x], *empty}) for x in who)
    return total


def pose(spec: Spec) -> dict[str, Any]:
    who, refused = spec
    told = [f"{x} refuses seat {listed(list(map(str, seats)), 'and')}" for x, seats in refused.items() if seats]
    return {
        "prompt": WORDINGS.write(who=listed(who), n=len(who), refused="; ".join(told)),
        "answer": str(count(who, refused)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    who = re.split(r", | and ", read["who"])
    no = {
        m[1]: set(map(int, re.findall(r"\d+", m[2])))
        for m in re.finditer(r"(\w+) refuses seat ([^;]+)", read["refused"])
    }
    seats = permutations(range(1, int(read["n"]) + 1))
    return str(sum(all(s not in no.get(x, ()) for x, s in zip(who, some, strict=True)) for some in seats))
