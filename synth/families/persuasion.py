"""How often can a judge be brought to convict, by a report whose rule the judge knows?

Kamenica and Gentzkow 2011, "Bayesian Persuasion". Certificate: the concave closure of the judge's choice, mu / tau,
against a search, over the text, for the most innocent persons whom the judge convicts with the guilty by Bayes' rule.
Difficulty axis: size of the fractions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 10}, {"size": 20}, {"size": 60}, {"size": 200})
CERTIFICATE = ("concave closure of the judge's choice", "search by Bayes' rule over the text")
WORDINGS = Wordings(
    "{k} of {n} accused are guilty. A judge who knows your rule convicts where guilt has a chance of at least {a}/{b}. How likely is a conviction at best?",
    "Of the accused, {k} of {n} are guilty. You report on them by a rule that the judge knows, who convicts where guilt has a chance of at least {a}/{b}. What share of all can you get convicted?",
    "A judge convicts whoever is guilty with a chance of at least {a}/{b}, as far as your report tells, and knows your rule. {k} of {n} accused are guilty. How likely is a conviction at most?",
    "Choose whom you accuse: {k} of {n} are guilty, and the judge, who knows how you choose, convicts from a chance of guilt of {a}/{b} on. What is the highest chance of a conviction?",
    "How often can a judge be brought to convict who knows your rule and wants a chance of guilt of at least {a}/{b}, if {k} of {n} accused are guilty?",
    answer="Answer with a fraction.",
    **dict.fromkeys("knab", "[0-9]+"),
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
        "prompt": WORDINGS.write(k=k, n=n, a=a, b=b),
        "answer": str(min(Fraction(1), Fraction(k, n) / Fraction(a, b))),
        "verifier": "number",
    }


def read(question: str) -> tuple[int, int, int, int]:
    """k of n accused are guilty, and the judge convicts from a / b on: (k, n, a, b). Raises Refused for a text that says none of this."""
    fields = WORDINGS.read(question)
    k, n, a, b = (int(fields[name]) for name in "knab")
    if not (0 < k < n and 0 < a < b):
        raise Refused("roundtrip: these are no chances")
    return k, n, a, b


def solve(question: str) -> str:
    k, n, a, b = read(question)
    guilty, innocent = k * a, (n - k) * a  # of n times a accused, so that the innocent to be accused are a whole number
    low, high = 0, innocent
    while low < high:
        accused = (low + high + 1) // 2
        if guilty * b >= a * (guilty + accused):  # of those accused, a / b at least are guilty
            low = accused
        else:
            high = accused - 1
    return str(Fraction(guilty + low, n * a))
