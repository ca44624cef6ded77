"""How often can a judge be brought to convict, by a report whose rule the judge knows?

Kamenica and Gentzkow 2011, "Bayesian Persuasion". Certificate: the concave closure of the judge's choice, mu / tau,
against Bayes' rule solved for how often the innocent may be accused, over the text. Difficulty axis: size of the
fractions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 10}, {"size": 20}, {"size": 60}, {"size": 200})
CERTIFICATE = ("concave closure of the judge's choice", "Bayes' rule over the text")
_TEXT = re.compile(
    r"(\d+) of (\d+) accused are guilty\. A judge who knows your rule convicts where guilt has a chance of at least (\d+)/(\d+)\. "
    r"How likely is a conviction at best\?"
)


def persuasion(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the chance. `levels` are the levels to draw from; env "persuade" has it
    played in turns (training/env/persuade.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="persuasion",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, size: int) -> tuple[str, tuple[int, int, int, int]]:
    while True:  # where the prior alone convicts, the answer is 1: half of all draws, and a guess that pays
        n, b = rng.randint(3, size), rng.randint(2, size)
        spec = rng.randint(1, n - 1), n, rng.randint(1, b - 1), b
        if spec[0] * b < spec[2] * n:
            break
    return f"{Fraction(*spec[:2])} {Fraction(*spec[2:])}", spec


def pose(spec: tuple[int, int, int, int]) -> dict[str, Any]:
    k, n, a, b = spec
    return {
        "prompt": f"{k} of {n} accused are guilty. A judge who knows your rule convicts where guilt has a chance of at least {a}/{b}. "
        "How likely is a conviction at best?",
        "answer": str(min(Fraction(1), Fraction(k, n) / Fraction(a, b))),
        "verifier": "number",
    }


def solve(question: str) -> str:
    k, n, a, b = map(int, parsed(_TEXT, question).groups())
    if not (0 < k < n and 0 < a < b):
        raise Refused("roundtrip: these are no chances")
    guilty = Fraction(k, n)
    innocent = 1 - guilty
    accused = min(
        Fraction(1), guilty * (b - a) / (innocent * a)
    )  # of the innocent: guilty / (guilty + innocent x) = a / b
    return str(guilty + innocent * accused)
