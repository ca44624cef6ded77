"""The product of two matrices.

Certificate: rows times columns on the values against a sum of outer products over the text. Difficulty axes: rows,
inner, columns, size of the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"rows": 1, "inner": 2, "columns": 2, "size": 9},
    {"rows": 2, "inner": 2, "columns": 2, "size": 12},
    {"rows": 2, "inner": 3, "columns": 3, "size": 12},
    {"rows": 3, "inner": 4, "columns": 3, "size": 20},
)
CERTIFICATE = ("rows times columns", "sum of outer products over the text")
WORDINGS = Wordings(
    "Multiply the matrices A = {a} and B = {b}, written row by row with semicolons between rows.",
    "What is the matrix AB for A = {a} and B = {b}? Semicolons part the rows.",
    "Rows end at semicolons: A = {a}, B = {b}. Compute A times B.",
    "Let A = {a} and B = {b} be matrices whose rows are parted by semicolons. Find AB.",
    "Given two matrices with semicolons between their rows, A = {a} and B = {b}, work out AB.",
    answer="Answer with the entries of AB, row by row, parted by spaces.",
    a=r"\[[-\d ;]+\]",
    b=r"\[[-\d ;]+\]",
)
Matrix = list[list[int]]
Spec = tuple[Matrix, Matrix]


def matrix_products(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the entries of the product, row by row. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="matrix_products",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, inner: int, columns: int, size: int) -> tuple[str, Spec]:
    a, b = (
        [[rng.randint(-size, size) for _ in range(w)] for _ in range(h)] for h, w in ((rows, inner), (inner, columns))
    )
    return f"{a} {b}", (a, b)


def write(matrix: Matrix) -> str:
    """`[1 2; 3 4]`."""
    return f"[{'; '.join(' '.join(map(str, row)) for row in matrix)}]"


def read(text: str) -> Matrix:
    return [integers(row) for row in text.split(";")]


def pose(spec: Spec) -> dict[str, Any]:
    a, b = spec
    entries = [sum(x * y for x, y in zip(row, column, strict=True)) for row in a for column in zip(*b, strict=True)]
    return {
        "prompt": WORDINGS.write(a=write(a), b=write(b)),
        "answer": " ".join(map(str, entries)),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    a, b = read(fields["a"]), read(fields["b"])
    total = [[0] * len(b[0]) for _ in a]
    for k, below in enumerate(b):
        for i, row in enumerate(a):
            for j, y in enumerate(below):
                total[i][j] += row[k] * y
    return " ".join(str(x) for row in total for x in row)
