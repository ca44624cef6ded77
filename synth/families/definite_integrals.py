"""The integral of a polynomial between two whole numbers.

Certificate: the antiderivative of the values against Boole's rule over the text, which is exact up to degree five.
Difficulty axes: degree, size of the coefficients, of the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.families.polynomials import read
from synth.families.polynomials import write as written
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"degree": 1, "size": 6, "bound": 4},
    {"degree": 2, "size": 9, "bound": 4},
    {"degree": 3, "size": 9, "bound": 6},
    {"degree": 5, "size": 12, "bound": 6},
)
CERTIFICATE = ("antiderivative", "Boole's rule over the text")
WORDINGS = Wordings(
    "What is the integral of {p} from x = {a} to x = {b}?",
    "Integrate {p} with respect to x between {a} and {b}.",
    "Evaluate the definite integral of {p} dx with lower bound {a} and upper bound {b}.",
    "Let f(x) = {p}. Compute the integral of f over the interval [{a}, {b}].",
    "Find the signed area between the curve y = {p} and the x-axis from x = {a} to x = {b}.",
    answer="Answer with an exact number: an integer or a fraction such as 7/3.",
    p=r"[-+x^\d ]+",
)
Spec = tuple[list[int], int, int]


def definite_integrals(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="definite_integrals",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, degree: int, size: int, bound: int) -> tuple[str, Spec]:
    poly = [rng.randint(-size, size) for _ in range(degree)] + [rng.choice([k for k in range(-size, size + 1) if k])]
    a, b = sorted(rng.sample(range(-bound, bound + 1), 2))
    return f"{poly} {a} {b}", (poly, a, b)


def pose(spec: Spec) -> dict[str, Any]:
    poly, a, b = spec
    above, below = (sum(Fraction(c, k + 1) * x ** (k + 1) for k, c in enumerate(poly)) for x in (b, a))
    return {
        "prompt": WORDINGS.write(p=written(poly), a=a, b=b),
        "answer": str(above - below),
        "verifier": "number",
        "working": f"The antiderivative is {above} at {b} and {below} at {a}.",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    a, b = int(fields["a"]), int(fields["b"])
    step = Fraction(b - a, 4)
    values = [sum(c * (a + i * step) ** k for c, k in read(fields["p"])) for i in range(5)]
    return str(2 * step / 45 * sum(w * y for w, y in zip((7, 32, 12, 32, 7), values, strict=True)))
