"""Divide one polynomial by another, with remainder.

Certificate: built as divisor times quotient plus remainder against long division over the text. Difficulty axes:
degree of the quotient, degree of the divisor, size of the coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.families.polynomials import read
from synth.families.polynomials import write as written
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"quotient": 1, "divisor": 1, "size": 6},
    {"quotient": 2, "divisor": 1, "size": 9},
    {"quotient": 2, "divisor": 2, "size": 9},
    {"quotient": 4, "divisor": 2, "size": 12},
)
CERTIFICATE = ("divisor times quotient plus remainder", "long division over the text")
WORDINGS = Wordings(
    "Divide {p} by {d}.",
    "What are the quotient and the remainder of ({p}) ÷ ({d})?",
    "Carry out polynomial long division of {p} by {d}.",
    "Find quotient and remainder when {p} is divided by {d}.",
    "The polynomial {p} is divided by {d}, with remainder.",
    answer="Answer with the coefficients of the quotient, highest power first, then those of the remainder (one for each degree below that of the divisor), zeros included, parted by spaces.",
    p=r"[-+x^\d ]+",
    d=r"[-+x^\d ]+",
)
Spec = tuple[list[int], list[int], list[int]]  # coefficients from the constant up


def polynomial_division(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: coefficients of quotient and remainder. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="polynomial_division",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, quotient: int, divisor: int, size: int) -> tuple[str, Spec]:
    def poly(degree: int, lead: int) -> list[int]:
        return [rng.randint(-size, size) for _ in range(degree)] + [lead]

    q = poly(quotient, rng.choice([k for k in range(-size, size + 1) if k]))
    d, r = poly(divisor, 1), poly(divisor - 1, rng.randint(-size, size))
    d[0] = d[0] or 1
    return f"{q} {d} {r}", (q, d, r)


def pose(spec: Spec) -> dict[str, Any]:
    q, d, r = spec
    p = [*r, *[0] * (len(q) + len(d) - 1 - len(r))]
    for i, a in enumerate(q):
        for j, b in enumerate(d):
            p[i + j] += a * b
    return {
        "prompt": WORDINGS.write(p=written(p), d=written(d)),
        "answer": " ".join(map(str, [*reversed(q), *reversed(r)])),
        "verifier": "ordered_list",
        "working": f"Quotient {written(q)}, remainder {written(r)}.",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    p, d = (dict.fromkeys(range(10), 0) | {k: c for c, k in read(fields[name])} for name in ("p", "d"))
    top, low = (max(k for k in poly if poly[k]) for poly in (p, d))
    quotient = []
    for k in range(top - low, -1, -1):
        quotient.append(factor := p[k + low] // d[low])
        for j in range(low + 1):
            p[k + j] -= factor * d[j]
    return " ".join(map(str, [*quotient, *(p[k] for k in range(low - 1, -1, -1))]))
