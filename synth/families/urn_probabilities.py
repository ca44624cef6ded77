"""The probability of the colours of balls drawn without replacement.

Certificate: binomials on the values against draws followed one by one from the text. Difficulty axes: colours, balls
of a colour, balls drawn.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import comb, prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"colours": 2, "balls": 6, "drawn": 2},
    {"colours": 3, "balls": 6, "drawn": 2},
    {"colours": 3, "balls": 8, "drawn": 3},
    {"colours": 4, "balls": 9, "drawn": 5},
)
CERTIFICATE = ("binomials", "draws one by one from the text")
COLOURS = ("red", "blue", "green", "white")
WORDINGS = Wordings(
    "A bag holds {bag} balls. {k} balls are drawn at random without replacement. What is the probability that exactly {wanted}?",
    "From an urn with {bag} balls, {k} are taken at random, none put back. Find the probability that exactly {wanted}.",
    "{k} balls are picked at random, without replacement, from a box with {bag} balls. How likely is it that exactly {wanted}?",
    "There are {bag} balls in a sack, and {k} of them are drawn blindly at once. Compute the probability that exactly {wanted}.",
    "Someone takes {k} balls at random and without putting any back from {bag} balls. What is the chance that exactly {wanted}?",
    answer="Answer with a fraction such as 3/8.",
    bag=r"[\da-z, ]+",
    wanted=r"\d+ of those drawn (?:is|are) [a-z]+(?: and exactly \d+ (?:is|are) [a-z]+)*",
)
Spec = tuple[dict[str, int], int, dict[str, int]]


def urn_probabilities(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a fraction. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="urn_probabilities",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, colours: int, balls: int, drawn: int) -> tuple[str, Spec]:
    bag = {c: rng.randint(2, balls) for c in rng.sample(COLOURS, colours)}
    while True:
        taken = Counter(rng.sample(list(bag), drawn, counts=list(bag.values())))
        wanted = {c: taken[c] for c in list(bag)[: max(1, colours - 2)]}
        if all(wanted.values()):
            return f"{sorted(bag.items())} {drawn} {sorted(wanted.items())}", (bag, drawn, wanted)


def pose(spec: Spec) -> dict[str, Any]:
    bag, k, wanted = spec
    others = sum(n for c, n in bag.items() if c not in wanted)
    good = prod(comb(bag[c], n) for c, n in wanted.items()) * comb(others, k - sum(wanted.values()))
    told = [f"{n} {'is' if n == 1 else 'are'} {c}" for c, n in wanted.items()]
    told[0] = told[0].replace(" ", " of those drawn ", 1)
    return {
        "prompt": WORDINGS.write(
            bag=listed([f"{n} {c}" for c, n in bag.items()]), k=k, wanted=" and exactly ".join(told)
        ),
        "answer": str(Fraction(good, comb(sum(bag.values()), k))),
        "verifier": "number",
        "working": f"{good} of {comb(sum(bag.values()), k)} choices.",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    bag = {c: int(n) for n, c in re.findall(r"(\d+) ([a-z]+)", fields["bag"])}
    wanted = {c: int(n) for n, c in re.findall(r"(\d+) (?:of those drawn )?(?:is|are) ([a-z]+)", fields["wanted"])}
    states = {tuple(0 for _ in bag): Fraction(1)}
    for step in range(int(fields["k"])):
        after: dict[tuple[int, ...], Fraction] = {}
        for taken, share in states.items():
            for i, n in enumerate(bag.values()):
                if n > taken[i]:
                    key = (*taken[:i], taken[i] + 1, *taken[i + 1 :])
                    after[key] = after.get(key, Fraction(0)) + share * Fraction(n - taken[i], sum(bag.values()) - step)
        states = after
    names = list(bag)
    return str(
        sum(
            (p for taken, p in states.items() if all(taken[names.index(c)] == n for c, n in wanted.items())),
            Fraction(0),
        )
    )
