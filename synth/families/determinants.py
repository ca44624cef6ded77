"""The determinant of a square matrix.

Certificate: Leibniz's sum over permutations on the values against elimination with fractions over the text.
Difficulty axes: rows, size of the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations
from math import prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.families.matrix_products import read, write
from synth.types import Problem, Quarantined, Split

LADDER = ({"rows": 2, "size": 9}, {"rows": 3, "size": 5}, {"rows": 3, "size": 12}, {"rows": 4, "size": 6})
CERTIFICATE = ("Leibniz's sum", "elimination over the text")
WORDINGS = Wordings(
    "What is the determinant of the matrix {m}, whose rows are parted by semicolons?",
    "Compute det A for A = {m}. Semicolons part the rows.",
    "Find the determinant of {m}, a matrix written row by row with semicolons between rows.",
    "The rows of a square matrix are parted by semicolons: {m}. Work out its determinant.",
    "A matrix is given by its rows, {m}, with a semicolon after each but the last. What is its determinant?",
    answer="Answer with one integer.",
    m=r"\[[-\d ;]+\]",
)
Spec = list[list[int]]


def determinants(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="determinants",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, size: int) -> tuple[str, Spec]:
    matrix = [[rng.randint(-size, size) for _ in range(rows)] for _ in range(rows)]
    return f"{matrix}", matrix


def pose(spec: Spec) -> dict[str, Any]:
    total = 0
    for order in permutations(range(len(spec))):
        turned = sum(a > b for a, b in combinations(order, 2))
        total += (-1) ** turned * prod(row[k] for row, k in zip(spec, order, strict=True))
    return {
        "prompt": WORDINGS.write(m=write(spec)),
        "answer": str(total),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    rows = [[Fraction(x) for x in row] for row in read(WORDINGS.read(question)["m"])]
    value = Fraction(1)
    while rows:
        at = next((i for i, row in enumerate(rows) if row[0]), None)
        if at is None:
            return "0"
        pivot = rows.pop(at)
        value *= pivot[0] * (-1) ** at
        rows = [[y - row[0] / pivot[0] * x for x, y in zip(pivot[1:], row[1:], strict=True)] for row in rows]
    return str(value)
