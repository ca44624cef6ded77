"""Quadratic equations with rational roots: a x^2 + b x + c = 0.

Certificate: the equation is expanded from drawn roots; from the text the roots come back by the discriminant's exact
square root, and substitution must give zero. A double root is one root. Difficulty axes: size of the roots, their
denominators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"root": 12, "denominator": 1, "scale": 1},
    {"root": 99, "denominator": 1, "scale": 1},
    {"root": 30, "denominator": 5, "scale": 1},
    {"root": 99, "denominator": 9, "scale": 9},
)
CERTIFICATE = ("expansion of the roots", "discriminant and substitution")
WORDINGS = Wordings(
    "Solve {equation} for x.",
    "Given that {equation}, what is x?",
    "Find x: {equation}.",
    "The equation {equation} has one root or two. What are the values of x?",
    "What are the solutions of {equation} for x?",
    answer="Answer with all different roots, integers or fractions such as -7/2, parted by spaces.",
    equation=r"[-+ x^\d]+ = 0",
)
_EQUATION = re.compile(r"(-?\d*)x\^2(?: ([-+]) (\d*)x)?(?: ([-+]) (\d+))? = 0")
Spec = tuple[tuple[Fraction, ...], tuple[int, int, int]]


def quadratic_equations(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: all roots, in any order. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="quadratic_equations",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, root: int, denominator: int, scale: int) -> tuple[str, Spec]:
    p, q = (Fraction(rng.randint(-root, root), rng.randint(1, denominator)) for _ in range(2))
    a = p.denominator * q.denominator
    b, c = -a * (p + q), a * p * q
    form, k = (a, int(b), int(c)), rng.randint(1, scale)
    return str(form), (tuple(sorted({p, q})), (k * form[0], k * form[1], k * form[2]))


def pose(spec: Spec) -> dict[str, Any]:
    roots, (a, b, c) = spec
    text = f"{a if a != 1 else ''}x^2"
    if b:
        text += f" {'-' if b < 0 else '+'} {abs(b) if abs(b) != 1 else ''}x"
    if c:
        text += f" {'-' if c < 0 else '+'} {abs(c)}"
    answer = " ".join(map(str, roots))
    return {
        "prompt": WORDINGS.write(equation=f"{text} = 0"),
        "answer": answer,
        "verifier": "item_set",
        "working": f"D = {b * b - 4 * a * c}, x = {', '.join(map(str, roots))}",
    }


def solve(question: str) -> str:
    lead, sign_b, size_b, sign_c, size_c = parsed(_EQUATION, WORDINGS.read(question)["equation"]).groups()
    a = int(lead) if lead else 1
    b = 0 if sign_b is None else int(f"{sign_b}{size_b or 1}")
    c = 0 if sign_c is None else int(f"{sign_c}{size_c}")
    square = b * b - 4 * a * c
    root = isqrt(square) if square >= 0 else -1
    if root * root != square:
        raise Refused(f"impossible: the discriminant {square} is no square")
    roots = {Fraction(-b + root, 2 * a), Fraction(-b - root, 2 * a)}
    if any(a * x * x + b * x + c for x in roots):
        raise Refused(f"routes_disagree: {roots} does not satisfy the equation")
    return " ".join(map(str, sorted(roots)))
