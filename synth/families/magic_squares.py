"""The missing numbers of a magic square.

Certificate: the square made from a formula against elimination over the equal sums of the text. Difficulty axes:
missing numbers, size of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"missing": 3, "size": 9},
    {"missing": 4, "size": 30},
    {"missing": 5, "size": 90},
    {"missing": 6, "size": 400},
)
CERTIFICATE = ("made from a formula", "elimination over the equal sums of the text")
WORDINGS = Wordings(
    "In this square all rows, columns and both diagonals have the same sum: {square}. What are the missing numbers?",
    "Complete the magic square {square}.",
    "Every row, every column and both diagonals of {square} add up to one and the same number. Find the numbers that belong in place of the question marks.",
    "A 3 by 3 square of whole numbers has equal sums in its rows, columns and two diagonals: {square}. Which numbers stand for the question marks?",
    "Restore the square {square}, whose three rows, three columns and two diagonals all have the same sum.",
    answer="Rows are parted by /. Answer with the missing numbers, row by row, parted by spaces.",
    square=r"[-\d? ]+/[-\d? ]+/[-\d? ]+",
)
Spec = tuple[list[int], list[int]]  # the nine numbers, the places that are missing
LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))


def magic_squares(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: whole numbers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="magic_squares",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, missing: int, size: int) -> tuple[str, Spec]:
    while True:
        m, a, b = rng.randint(2, size), rng.randint(-size, size), rng.randint(-size, size)
        square = [m + a, m - a - b, m + b, m - a + b, m, m + a - b, m - b, m + a + b, m - a]
        holes = sorted(rng.sample(range(9), missing))
        if len(set(square)) == 9 and eliminated([None if i in holes else x for i, x in enumerate(square)]) is not None:
            return f"{square} {holes}", (square, holes)


def eliminated(cells: Sequence[int | None]) -> list[Fraction] | None:
    """All cells and the sum, where the equal sums decide them; else None."""
    table = []
    for line in LINES:
        row = [Fraction(int(i in line and cells[i] is None)) for i in range(9)] + [Fraction(-1)]
        table.append([*row, Fraction(-sum(cells[i] or 0 for i in line))])
    unknown = [i for i in range(9) if cells[i] is None] + [9]
    done = 0
    for k in unknown:
        at = next((i for i in range(done, len(table)) if table[i][k]), None)
        if at is None:
            return None
        table[done], table[at] = table[at], table[done]
        table[done] = [x / table[done][k] for x in table[done]]
        for i, row in enumerate(table):
            if i != done and row[k]:
                table[i] = [x - row[k] * y for x, y in zip(row, table[done], strict=True)]
        done += 1
    if any(row[-1] for row in table[done:]):
        return None
    solved = dict(zip(unknown, (row[-1] for row in table), strict=False))
    return [solved[i] if (x := cells[i]) is None else Fraction(x) for i in range(9)]


def pose(spec: Spec) -> dict[str, Any]:
    square, holes = spec
    shown = ["?" if i in holes else str(x) for i, x in enumerate(square)]
    return {
        "prompt": WORDINGS.write(square="/".join(" ".join(shown[i : i + 3]) for i in (0, 3, 6))),
        "answer": " ".join(str(square[i]) for i in holes),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    cells = [None if x == "?" else int(x) for x in WORDINGS.read(question)["square"].replace("/", " ").split()]
    whole = eliminated(cells)
    if whole is None:
        raise Refused("not_unique: the equal sums do not decide every number")
    return " ".join(str(x) for x, shown in zip(whole, cells, strict=True) if shown is None)
