"""The slope of a product of polynomials at a point.

Certificate: the product rule on the values against numbers with an infinitesimal part over the text. Difficulty
axes: factors, degree, size of the coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.families.polynomials import read
from synth.families.polynomials import write as written
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"factors": 1, "degree": 2, "size": 6, "at": 5},
    {"factors": 1, "degree": 4, "size": 9, "at": 5},
    {"factors": 2, "degree": 2, "size": 9, "at": 6},
    {"factors": 3, "degree": 2, "size": 9, "at": 6},
)
CERTIFICATE = ("product rule", "numbers with an infinitesimal part over the text")
WORDINGS = Wordings(
    "What is the slope of the curve y = {p} at x = {x}?",
    "Let f(x) = {p}. Compute f'({x}).",
    "Differentiate {p} with respect to x and evaluate the result at x = {x}.",
    "Find the derivative of {p} at the point x = {x}.",
    "The tangent to y = {p} is drawn where x = {x}. What is its slope?",
    answer="Answer with one integer.",
    p=r"\([-+x^\d ()]+\)",
)
Spec = tuple[list[list[int]], int]


def derivative_values(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="derivative_values",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, factors: int, degree: int, size: int, at: int) -> tuple[str, Spec]:
    polys = [
        [rng.randint(-size, size) for _ in range(degree)] + [rng.choice([k for k in range(-size, size + 1) if k])]
        for _ in range(factors)
    ]
    x = rng.randint(-at, at)
    return f"{sorted(polys)} {x}", (polys, x)


def pose(spec: Spec) -> dict[str, Any]:
    polys, x = spec
    values = [sum(c * x**k for k, c in enumerate(p)) for p in polys]
    slopes = [sum(k * c * x ** (k - 1) for k, c in enumerate(p) if k) for p in polys]
    total = sum(s * prod(values[:i]) * prod(values[i + 1 :]) for i, s in enumerate(slopes))
    return {
        "prompt": WORDINGS.write(p="".join(f"({written(p)})" for p in polys), x=x),
        "answer": str(total),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    x, value, slope = int(fields["x"]), 1, 0
    for text in fields["p"][1:-1].split(")("):
        here = more = 0
        for c, k in read(text):
            power, rate = 1, 0  # x^k and its derivative, factor by factor
            for _ in range(k):
                power, rate = power * x, rate * x + power
            here, more = here + c * power, more + c * rate
        value, slope = value * here, slope * here + value * more
    return str(slope)
