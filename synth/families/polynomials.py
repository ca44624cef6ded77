"""Expand a product of polynomials, or differentiate a polynomial.

Certificate: coefficients by convolution and by the power rule on the values; from the text the product is interpolated:
it is evaluated at as many points as its degree needs, and Newton's divided differences (for a derivative, of the
polynomial's own values) give the coefficients. The verifier takes any way to write the same function. Difficulty axes:
degree of a factor, size of the coefficients, factors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, read_kind
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"factors": 2, "degree": 1, "size": 9, "kinds": ("Expand",)},
    {"factors": 1, "degree": 3, "size": 20, "kinds": ("Differentiate",)},
    {"factors": 2, "degree": 2, "size": 12, "kinds": ("Expand", "Differentiate")},
    {"factors": 3, "degree": 2, "size": 20, "kinds": ("Expand",)},
)
CERTIFICATE = ("convolution, power rule", "interpolation of values of the text")
_FORM = "Answer with a polynomial in x such as 3x^2 - x + 4."
WORDINGS = {
    "Expand": Wordings(
        "Expand {text}.",
        "Multiply out {text}.",
        "Write {text} without parentheses.",
        "What polynomial is {text} when it is multiplied out?",
        "A student has to remove the parentheses of {text} and add up equal powers. What does the student get?",
        answer=_FORM,
        text=r"(?:\([-+ x^\d]+\))+",
    ),
    "Differentiate": Wordings(
        "Differentiate {text}.",
        "What is the derivative of {text}?",
        "Find f'(x) for f(x) = {text}.",
        "A curve has the equation y = {text}. Give its slope as a function of x.",
        "At time x a point on a line is at {text}. What is its velocity at time x?",
        answer=_FORM,
        text=r"[-+ x^\d]+",
    ),
}
_TERM = re.compile(r"([-+]?) ?(\d*)(x?)(?:\^(\d))?")
Poly = tuple[int, ...]  # coefficients from the constant up


def polynomials(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a polynomial in x. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="polynomials",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(
    rng: Random, *, factors: int, degree: int, size: int, kinds: Sequence[str]
) -> tuple[str, tuple[str, list[Poly]]]:
    def coefficient() -> int:
        return rng.choice((1, -1)) * rng.randint(1, size)

    kind = rng.choice(kinds)
    if kind == "Differentiate":  # one polynomial, of the degree that the product would have
        factors, degree = 1, factors * degree
    chosen = [
        tuple(coefficient() if rng.random() < 0.8 or k in (0, degree) else 0 for k in range(degree + 1))
        for _ in range(factors)
    ]
    return f"{kind} {sorted(chosen)}", (kind, chosen)


def write(poly: Sequence[int | Fraction]) -> str:
    """`3x^2 - x + 4`."""
    text = ""
    for k in range(len(poly) - 1, -1, -1):
        if not poly[k]:
            continue
        size = "" if abs(poly[k]) == 1 and k else str(abs(poly[k]))
        sign = ("-" if poly[k] < 0 else "") if not text else (" - " if poly[k] < 0 else " + ")
        text += f"{sign}{size}{'' if k == 0 else 'x' if k == 1 else f'x^{k}'}"
    return text or "0"


def pose(spec: tuple[str, list[Poly]]) -> dict[str, Any]:
    kind, chosen = spec
    if kind == "Differentiate":
        result = [k * c for k, c in enumerate(chosen[0])][1:]
        prompt = WORDINGS[kind].write(text=write(chosen[0]))
        return {"prompt": prompt, "answer": write(result), "verifier": "formula"}
    result, steps = list(chosen[0]), []
    for poly in chosen[1:]:
        longer = [0] * (len(result) + len(poly) - 1)
        for i, a in enumerate(result):
            for j, b in enumerate(poly):
                longer[i + j] += a * b
        result = longer
        steps.append(write(result))
    text = "".join(f"({write(p)})" for p in chosen)
    return {
        "prompt": WORDINGS[kind].write(text=text),
        "answer": write(result),
        "verifier": "formula",
        "working": "; ".join(steps[:-1]),
    }


def read(text: str) -> list[tuple[int, int]]:
    """(coefficient, power) of every term."""
    return [(int(f"{s}{n or 1}"), int(k) if k else bool(x)) for s, n, x, k in _TERM.findall(text) if n or x]


def solve(question: str) -> str:
    kind, fields = read_kind(WORDINGS, question)
    text = fields["text"]
    factors = [read(t) for t in (re.findall(r"\(([^)]+)\)", text) if kind == "Expand" else [text])]
    degree = sum(max(k for _, k in f) for f in factors)
    points = [Fraction(x) for x in range(degree + 1)]
    table = [prod((sum(c * x**k for c, k in f) for f in factors), start=Fraction(1)) for x in points]
    for level in range(1, degree + 1):  # divided differences, in place
        for i in range(degree, level - 1, -1):
            table[i] = (table[i] - table[i - 1]) / (points[i] - points[i - level])
    poly = [table[degree]]
    for i in range(degree - 1, -1, -1):  # Horner's scheme in Newton's form
        shifted = [Fraction(0), *poly]
        poly = [a - points[i] * b for a, b in zip(shifted, [*poly, Fraction(0)], strict=True)]
        poly[0] += table[i]
    return write([k * c for k, c in enumerate(poly)][1:] if kind == "Differentiate" else poly)
