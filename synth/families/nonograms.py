"""A picture of black and white cells from the lengths of its black runs.

Certificate: cells forced line by line on the values, until all are, against a count of all pictures that fit the
text. Difficulty axes: rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 3}, {"size": 4}, {"size": 5}, {"size": 6})
CERTIFICATE = ("cells forced line by line", "a count of all pictures that fit the text")
WORDINGS = Wordings(
    "Nonogram of {n} by {n} cells. Runs of black cells in the rows, from top to bottom: {rows}; in the columns, from left to right: {columns}. Solve it.",
    "Fill a {n} x {n} grid so that the blocks of black cells are {rows} in the rows and {columns} in the columns.",
    "In a picture of {n} rows and {n} columns the lengths of the black runs are {rows} (rows, top first) and {columns} (columns, left first). What is the picture?",
    "Row clues: {rows}. Column clues: {columns}. Find the {n} by {n} picture of this nonogram.",
    "A picross puzzle with {n} rows and {n} columns has the row clues {rows} and the column clues {columns}. Find its solution.",
    answer="Clues are parted by commas, 0 is an empty line. Answer with the rows of 1 (black) and 0 (white), parted by /.",
    rows=r"[\d, ]+",
    columns=r"[\d, ]+",
)
Spec = list[str]


def nonograms(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a grid. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="nonograms",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int) -> tuple[str, Spec]:
    while True:
        rows = ["".join(rng.choice("011") for _ in range(size)) for _ in range(size)]
        if forced([runs(row) for row in rows], [runs("".join(column)) for column in zip(*rows, strict=True)]):
            return f"{rows}", rows


def runs(line: str) -> str:
    return " ".join(str(len(run)) for run in line.split("0") if run) or "0"


@cache
def lines(clue: str, size: int) -> list[str]:
    """Every line with these runs."""
    return [line for line in map("".join, product("01", repeat=size)) if runs(line) == clue]


def forced(rows: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether looking at one line after the other decides every cell."""
    size = len(rows)
    known = {(r, c): "" for r in range(size) for c in range(size)}
    places = [[(i, k) for k in range(size)] for i in range(size)] + [[(k, i) for k in range(size)] for i in range(size)]
    changed = True
    while changed:
        changed = False
        for clue, line in zip([*rows, *columns], places, strict=True):
            fits = [x for x in lines(clue, size) if all(known[p] in ("", v) for p, v in zip(line, x, strict=True))]
            for k, p in enumerate(line):
                if not known[p] and len({x[k] for x in fits}) == 1:
                    known[p], changed = fits[0][k], True
    return all(known.values())


def pose(spec: Spec) -> dict[str, Any]:
    rows = ", ".join(map(runs, spec))
    columns = ", ".join(runs("".join(column)) for column in zip(*spec, strict=True))
    return {
        "prompt": WORDINGS.write(n=len(spec), rows=rows, columns=columns),
        "answer": "/".join(spec),
        "verifier": "grid",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    n = int(fields["n"])
    across, down = ([integers(clue) for clue in fields[name].split(", ")] for name in ("rows", "columns"))
    pictures: list[list[str]] = [[]]
    for clue in across:
        pictures = [p + [line] for p in pictures for line in _laid(clue, n) if _opens([*p, line], down, n)]
    if len(pictures) != 1:
        raise Refused(f"{'not_unique' if pictures else 'impossible'}: {len(pictures)} pictures fit")
    return "/".join(pictures[0])


def _laid(clue: Sequence[int], room: int) -> list[str]:
    """Every line of this length with these runs."""
    if not clue or clue == [0]:
        return ["0" * room]
    out = []
    for gap in range(room - sum(clue) - len(clue) + 2):
        head = "0" * gap + "1" * clue[0] + "0" * (len(clue) > 1)
        out += [head + rest for rest in _laid(clue[1:], room - len(head))]
    return out


def _opens(rows: Sequence[str], down: Sequence[Sequence[int]], n: int) -> bool:
    """Whether each column so far can still become what its clue says."""
    return all(any(line.startswith("".join(row[c] for row in rows)) for line in _laid(down[c], n)) for c in range(n))
