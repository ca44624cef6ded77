"""Which hidden cells of a minesweeper must hold a mine.

Certificate: all layouts that fit the values against, for each cell of the text, a search for a layout without a mine
there. Difficulty axes: rows, columns, hidden cells.
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
    {"rows": 3, "columns": 3, "hidden": 3},
    {"rows": 3, "columns": 4, "hidden": 5},
    {"rows": 4, "columns": 5, "hidden": 7},
    {"rows": 5, "columns": 5, "hidden": 10},
)
CERTIFICATE = ("all layouts that fit", "a search for a layout without each mine")
WORDINGS = Wordings(
    "Minesweeper: {grid}. Which hidden cells are certain to hold a mine?",
    "In the minesweeper position {grid}, name every hidden cell that must be a mine.",
    "The numbers in {grid} count the mines in the up to eight cells around. Which of the hidden cells surely hold one?",
    "A minefield shows {grid}. List the hidden cells in which there has to be a mine, whatever the others hold.",
    "From the numbers of {grid} alone, which hidden cells can be proved to be mines?",
    answer="Digits count mines around them, also diagonally; ? is hidden. Rows 1, 2, ... from the top are parted by /, columns are a, b, ... Answer with cells such as b3, parted by spaces.",
    grid=r"[\d?]+(?:/[\d?]+)+",
)
Cell = tuple[int, int]
Spec = tuple[list[str], list[Cell]]


def around(cell: Cell, cells: Sequence[Cell]) -> list[Cell]:
    return [x for x in cells if x != cell and max(abs(x[0] - cell[0]), abs(x[1] - cell[1])) == 1]


def minesweepers(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: names of cells. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="minesweepers",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, columns: int, hidden: int) -> tuple[str, Spec]:
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    while True:
        covered = sorted(rng.sample(cells, hidden))
        mines = [x for x in covered if rng.random() < 0.5]
        shown = {x: len(around(x, mines)) for x in cells if x not in covered}
        clues = [(set(around(x, covered)), n) for x, n in shown.items()]
        sure = set(covered)
        for bits in product((False, True), repeat=hidden):
            layout = {x for x, mine in zip(covered, bits, strict=True) if mine}
            if sure and all(len(near & layout) == n for near, n in clues):
                sure &= layout
        if sure and len(sure) < hidden:
            grid = ["".join(str(shown.get((r, c), "?")) for c in range(columns)) for r in range(rows)]
            return f"{grid}", (grid, sorted(sure))


def pose(spec: Spec) -> dict[str, Any]:
    grid, sure = spec
    return {
        "prompt": WORDINGS.write(grid="/".join(grid)),
        "answer": " ".join(f"{'abcde'[c]}{r + 1}" for r, c in sure),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    grid = WORDINGS.read(question)["grid"].split("/")
    signs = {(r, c): x for r, row in enumerate(grid) for c, x in enumerate(row)}
    hidden = [cell for cell, x in signs.items() if x == "?"]
    clues = [(around(cell, hidden), int(x)) for cell, x in signs.items() if x != "?"]

    def possible(known: dict[Cell, int]) -> bool:
        for near, n in clues:
            mines = sum(known.get(x, 0) for x in near)
            if mines > n or mines + sum(x not in known for x in near) < n:
                return False
        free = next((x for x in hidden if x not in known), None)
        return free is None or possible({**known, free: 0}) or possible({**known, free: 1})

    return " ".join(f"{'abcde'[c]}{r + 1}" for r, c in sorted(hidden) if not possible({(r, c): 0}))
