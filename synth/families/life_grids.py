"""Generations of Conway's Game of Life on a small grid.

Certificate: counts of neighbours spread from the living cells on the values against each cell looked up in the text.
Difficulty axes: rows, columns, generations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"rows": 3, "columns": 4, "steps": 1},
    {"rows": 4, "columns": 5, "steps": 1},
    {"rows": 5, "columns": 5, "steps": 2},
    {"rows": 6, "columns": 6, "steps": 4},
)
CERTIFICATE = ("counts spread from living cells", "each cell looked up in the text")
WORDINGS = Wordings(
    "Conway's Game of Life: 1 is a living cell, and beyond the edge all is dead. What does {grid} become after {k}?",
    "Apply the rules of Conway's Game of Life to {grid} (1 alive, 0 dead, nothing lives outside) for {k}.",
    "The grid {grid} is a position of Conway's Game of Life, 1 for alive; cells outside stay dead. Which grid follows {k} later?",
    "In Conway's Game of Life on a bounded board, dead beyond its edge, find the state {k} after {grid}, where 1 means alive.",
    "Let the cells of {grid} (1 alive, 0 dead, dead outside) live on for {k} under Conway's rules. What is left?",
    answer="Answer with the rows, parted by /.",
    grid="[01]+(?:/[01]+)+",
    k=r"\d+ generations?",
)
Spec = tuple[list[str], int]


def life_grids(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a grid. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="life_grids",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, columns: int, steps: int) -> tuple[str, Spec]:
    while True:
        grid = ["".join(rng.choice("00111") for _ in range(columns)) for _ in range(rows)]
        if "1" in "".join(after := later(grid, steps)) and after != grid:
            return f"{grid} {steps}", (grid, steps)


def later(grid: list[str], steps: int) -> list[str]:
    for _ in range(steps):
        near: dict[tuple[int, int], int] = {}
        for r, row in enumerate(grid):
            for c, x in enumerate(row):
                for p, q in product((-1, 0, 1), repeat=2):
                    if x == "1" and (p or q):
                        near[r + p, c + q] = near.get((r + p, c + q), 0) + 1
        grid = [
            "".join(
                "1" if near.get((r, c)) == 3 or (x == "1" and near.get((r, c)) == 2) else "0" for c, x in enumerate(row)
            )
            for r, row in enumerate(grid)
        ]
    return grid


def pose(spec: Spec) -> dict[str, Any]:
    grid, steps = spec
    return {
        "prompt": WORDINGS.write(grid="/".join(grid), k=f"{steps} generation{'s' if steps > 1 else ''}"),
        "answer": "/".join(later(grid, steps)),
        "verifier": "grid",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    width = fields["grid"].index("/") + 1
    cells = fields["grid"] + "/"
    for _ in range(int(fields["k"].split()[0])):
        after = ""
        for i, x in enumerate(cells):
            alive = sum(
                0 <= i + d < len(cells) and cells[i + d] == "1"
                for d in (-width - 1, -width, 1 - width, -1, 1, width - 1, width, width + 1)
            )
            after += "/" if x == "/" else "1" if alive == 3 or (alive == 2 and x == "1") else "0"
        cells = after
    return cells[:-1]
