"""Which lamps to press so that all go out.

Certificate: the drawn presses, on boards where only one set leads anywhere, against elimination over the text's
lamps. Difficulty axes: rows, columns, presses.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"rows": 2, "columns": 4, "presses": 4},
    {"rows": 3, "columns": 3, "presses": 3},
    {"rows": 3, "columns": 4, "presses": 5},
    {"rows": 4, "columns": 5, "presses": 9},
)
CERTIFICATE = ("the drawn presses", "elimination over the text's lamps")
WORDINGS = Wordings(
    "Pressing a lamp switches it and its neighbours above, below, left and right. Which lamps must be pressed to put out all of {grid}?",
    "Lights Out: {grid}, where a press toggles a lamp and those directly above, below and beside it. Find the set of presses that turns every lamp off.",
    "In {grid} each press of a cell flips that cell and the cells that share a side with it. Which cells, pressed once each, leave only 0?",
    "A panel shows {grid}. A button changes its own lamp and the up to four lamps next to it, not diagonally. Which buttons turn everything off?",
    "Make all cells of {grid} 0, where choosing a cell flips it and its neighbours along the rows and columns. Which cells are chosen?",
    answer="1 is on; rows 1, 2, ... from the top are parted by /, columns are a, b, ... Answer with cells such as b3, parted by spaces.",
    grid="[01]+(?:/[01]+)+",
)
Spec = tuple[int, int, list[tuple[int, int]]]


def lights_out(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: names of cells. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="lights_out",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, columns: int, presses: int) -> tuple[str, Spec]:
    cells = [(r, c) for r in range(rows) for c in range(columns)]
    pressed = sorted(rng.sample(cells, rng.randint(max(1, presses - 2), presses)))
    return f"{rows} {columns} {pressed}", (rows, columns, pressed)


def pose(spec: Spec) -> dict[str, Any]:
    rows, columns, pressed = spec
    lamps = [[0] * columns for _ in range(rows)]
    for r, c in pressed:
        for p, q in ((r, c), (r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 0 <= p < rows and 0 <= q < columns:
                lamps[p][q] ^= 1
    return {
        "prompt": WORDINGS.write(grid="/".join("".join(map(str, row)) for row in lamps)),
        "answer": " ".join(f"{'abcdef'[c]}{r + 1}" for r, c in pressed),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    grid = WORDINGS.read(question)["grid"].split("/")
    cells = [(r, c) for r in range(len(grid)) for c in range(len(grid[0]))]
    rows = []  # a bit for each press that switches the lamp, and one behind them for the lamp
    for r, c in cells:
        bits = sum(1 << i for i, (p, q) in enumerate(cells) if abs(p - r) + abs(q - c) <= 1)
        rows.append(bits | int(grid[r][c]) << len(cells))
    for k in range(len(cells)):
        at = next((i for i in range(k, len(rows)) if rows[i] >> k & 1), None)
        if at is None:
            raise Refused("not_unique: several sets of presses have the same effect")
        rows[k], rows[at] = rows[at], rows[k]
        rows = [row ^ rows[k] if i != k and row >> k & 1 else row for i, row in enumerate(rows)]
    return " ".join(f"{'abcdef'[c]}{r + 1}" for (r, c), row in zip(cells, rows, strict=True) if row >> len(cells))
