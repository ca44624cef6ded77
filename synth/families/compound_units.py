"""A quantity in another compound unit of science.

Certificate: a table of whole units on the values against the factors of numerator and denominator, read from the
text. Difficulty axes: power of the lengths, size of the amount.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"power": 1, "size": 60}, {"power": 2, "size": 300}, {"power": 3, "size": 2000})
CERTIFICATE = ("a table of whole units", "factors of numerator and denominator")
WORDINGS = Wordings(
    "Convert {n} {a} to {b}.",
    "What is {n} {a} in {b}?",
    "Express {n} {a} in {b}.",
    "A table gives {n} {a}, but {b} is needed. Which number belongs there?",
    "Change the unit of {n} {a} into {b}.",
    answer="Answer with the exact number alone, an integer, a decimal or a fraction.",
    a="[A-Za-z0-9/^]+",
    b="[A-Za-z0-9/^]+",
)
TABLE = {  # power -> units of one quantity, each with how many of the first it is
    1: (
        {"m/s": Fraction(1), "km/h": Fraction(5, 18), "m/min": Fraction(1, 60), "km/min": Fraction(50, 3)},
        {"J/g": Fraction(1), "kJ/kg": Fraction(1), "J/kg": Fraction(1, 1000), "kJ/g": Fraction(1000)},
        {"g/l": Fraction(1), "kg/l": Fraction(1000), "mg/l": Fraction(1, 1000)},
        {"l/s": Fraction(1), "l/min": Fraction(1, 60), "l/h": Fraction(1, 3600)},
    ),
    2: (
        {"N/m^2": Fraction(1), "N/cm^2": Fraction(10000), "kN/m^2": Fraction(1000), "N/mm^2": Fraction(1000000)},
        {"g/m^2": Fraction(1), "kg/m^2": Fraction(1000), "mg/cm^2": Fraction(10), "g/cm^2": Fraction(10000)},
        {"W/m^2": Fraction(1), "kW/m^2": Fraction(1000), "W/cm^2": Fraction(10000), "mW/cm^2": Fraction(10)},
    ),
    3: (
        {"kg/m^3": Fraction(1), "g/cm^3": Fraction(1000), "mg/mm^3": Fraction(1000), "g/m^3": Fraction(1, 1000)},
        {"m^3/h": Fraction(1), "m^3/min": Fraction(60), "cm^3/s": Fraction(9, 2500), "cm^3/min": Fraction(3, 50000)},
    ),
}
BASE = {
    "m": 1,
    "km": 1000,
    "cm": Fraction(1, 100),
    "mm": Fraction(1, 1000),
    "s": 1,
    "min": 60,
    "h": 3600,
    "g": 1,
    "kg": 1000,
    "mg": Fraction(1, 1000),
    "N": 1,
    "kN": 1000,
    "J": 1,
    "kJ": 1000,
    "W": 1,
    "kW": 1000,
    "mW": Fraction(1, 1000),
}
BASE |= {"l": Fraction(1, 1000)}  # in cubic metres
Spec = tuple[int, str, str, Fraction]


def compound_units(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="compound_units",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, power: int, size: int) -> tuple[str, Spec]:
    table = rng.choice(TABLE[power])
    while True:
        (a, one), (b, other) = rng.sample(sorted(table.items()), 2)
        n = rng.randint(2, size)
        if one != other:
            return f"{n} {a} {b}", (n, a, b, n * one / other)


def pose(spec: Spec) -> dict[str, Any]:
    n, a, b, value = spec
    return {"prompt": WORDINGS.write(n=n, a=a, b=b), "answer": str(value), "verifier": "number"}


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    value = Fraction(int(fields["n"]))
    for unit, away in ((fields["a"], False), (fields["b"], True)):
        above, below = (re.fullmatch(r"([A-Za-z]+)(?:\^(\d))?", part) for part in unit.split("/"))
        if not above or not below or above[1] not in BASE or below[1] not in BASE:
            raise Refused(f"roundtrip: {unit!r} is no known unit")
        factor = Fraction(1)
        for _ in range(int(above[2] or 1)):
            factor *= BASE[above[1]]
        for _ in range(int(below[2] or 1)):
            factor /= BASE[below[1]]
        value = value / factor if away else value * factor
    return str(value)
