"""The smallest coefficients that balance the burning of a compound.

Certificate: atoms counted element by element on the values against a search for the smallest solution of the text's
equations. Difficulty axes: elements, atoms of an element.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"elements": 2, "atoms": 8},
    {"elements": 3, "atoms": 10},
    {"elements": 4, "atoms": 12},
    {"elements": 5, "atoms": 14},
)
CERTIFICATE = ("atoms counted element by element", "a search over the text's equations")
WORDINGS = Wordings(
    "Balance the reaction {reaction}.",
    "Which smallest whole numbers balance {reaction}?",
    "Find the coefficients of the balanced equation for {reaction}.",
    "A fuel burns: {reaction}. How many of each molecule take part at the least?",
    "Put whole numbers, as small as possible, before the formulas so that {reaction} is balanced. Which numbers are they?",
    answer="Answer with the coefficients in the order of the formulas, 1 included, parted by spaces.",
    reaction=r"[A-Z][A-Za-z\d]* \+ O2 -> [A-Za-z\d]+(?: \+ [A-Za-z\d]+)*",
)
Spec = tuple[int, int, int, int, int]


def reaction_balancing(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: whole numbers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="reaction_balancing",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, elements: int, atoms: int) -> tuple[str, Spec]:
    c, h = rng.randint(1, atoms), rng.randint(1, 2 * atoms)
    o, n, s = (rng.randint(1, 5) if elements > k else 0 for k in (2, 3, 4))
    if 4 * c + h + 4 * s <= 2 * o:
        o = 1
    return f"{c} {h} {o} {n} {s}", (c, h, o, n, s)


def pose(spec: Spec) -> dict[str, Any]:
    c, h, o, n, s = spec
    oxygen = Fraction(2 * c + 2 * s - o, 2) + Fraction(h, 4)
    counts = [Fraction(1), oxygen, Fraction(c), Fraction(h, 2)] + [Fraction(n, 2)] * bool(n) + [Fraction(s)] * bool(s)
    scale = lcm(*(x.denominator for x in counts))
    whole = [int(x * scale) for x in counts]
    whole = [x // gcd(*whole) for x in whole]
    fuel = "".join(f"{e}{k if k > 1 else ''}" for e, k in zip("CHONS", spec, strict=True) if k)
    right = ["CO2", "H2O"] + ["N2"] * bool(n) + ["SO2"] * bool(s)
    return {
        "prompt": WORDINGS.write(reaction=f"{fuel} + O2 -> {' + '.join(right)}"),
        "answer": " ".join(map(str, whole)),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    left, right = ([read(f) for f in side.split(" + ")] for side in WORDINGS.read(question)["reaction"].split(" -> "))
    for fuel in range(1, 9):
        need = {e: fuel * k for e, k in left[0].items()}
        coefficients = []
        for molecule in right:
            (first, k), *_ = molecule.items()
            if need.get(first, 0) % k:
                break
            coefficients.append(need.get(first, 0) // k)
        else:
            oxygen = sum(m * molecule.get("O", 0) for m, molecule in zip(coefficients, right, strict=True)) - need.get(
                "O", 0
            )
            if oxygen > 0 and oxygen % 2 == 0:
                return " ".join(map(str, [fuel, oxygen // 2, *coefficients]))
    raise Refused("impossible: no small coefficients balance the reaction")


def read(formula: str) -> dict[str, int]:
    return {e: int(k or 1) for e, k in re.findall(r"([A-Z][a-z]?)(\d*)", formula)}
