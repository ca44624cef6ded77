"""Sudoku of 4 x 4 and 9 x 9 with exactly one solution.

Certificate: the grid is a shuffled Latin pattern, its solutions counted by a search over bit masks that fills the cell
with the fewest candidates first; from the text all solutions are counted by exact cover (Knuth's Algorithm X). There
must be one. Difficulty axes: size, cells left open.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"box": 2, "open": 5},
    {"box": 2, "open": 9},
    {"box": 3, "open": 20},
    {"box": 3, "open": 36},
    {"box": 3, "open": 46},
)
CERTIFICATE = ("search over bit masks", "exact cover over the text, all solutions counted")
_TEXT = re.compile(r"Complete the ([49]) x \1 sudoku: ([1-9._/]+)")
Spec = tuple[int, str, str]  # (box, solution, puzzle), cells in row order, "." is open


def sudoku(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the full grid, rows parted by "/". `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="sudoku",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, box: int, open: int) -> tuple[str, Spec]:
    n = box * box

    def shuffled() -> list[int]:  # bands in random order, rows within each in random order
        return [box * band + row for band in rng.sample(range(box), box) for row in rng.sample(range(box), box)]

    digits, rows, columns = rng.sample("123456789"[:n], n), shuffled(), shuffled()
    solution = "".join(digits[(box * (r % box) + r // box + c) % n] for r in rows for c in columns)
    while True:
        hidden = set(rng.sample(range(n * n), open))
        puzzle = "".join("." if i in hidden else d for i, d in enumerate(solution))
        if len(solutions(puzzle, 2)) == 1:
            return puzzle, (box, solution, puzzle)


def _rows(cells: str, n: int) -> str:
    return "/".join(cells[i : i + n] for i in range(0, n * n, n))


def pose(spec: Spec) -> dict[str, Any]:
    box, solution, puzzle = spec
    n = box * box
    return {
        "prompt": f"Complete the {n} x {n} sudoku: {_rows(puzzle, n)}",
        "answer": _rows(solution, n),
        "verifier": "grid",
    }


def solutions(puzzle: str, limit: int) -> list[str]:
    """At most `limit` solutions, by a search over the masks of digits used in every row, column and box."""
    n = 4 if len(puzzle) == 16 else 9
    box = int(n**0.5)
    rows, columns, boxes = [0] * n, [0] * n, [0] * n
    cells = list(puzzle)
    free = []
    for i, digit in enumerate(puzzle):
        r, c = divmod(i, n)
        if digit == ".":
            free.append((i, r, c, r // box * box + c // box))
            continue
        bit, b = 1 << int(digit), r // box * box + c // box
        if (rows[r] | columns[c] | boxes[b]) & bit:
            return []
        rows[r], columns[c], boxes[b] = rows[r] | bit, columns[c] | bit, boxes[b] | bit
    every, grids = (1 << n + 1) - 2, []

    def search() -> None:
        best, mask, fewest = None, 0, n + 1
        for k, (_, r, c, b) in enumerate(free):
            open_ = every & ~(rows[r] | columns[c] | boxes[b])
            if (count := open_.bit_count()) < fewest:
                best, mask, fewest = k, open_, count
                if count <= 1:
                    break
        if best is None:
            grids.append("".join(cells))
            return
        i, r, c, b = free.pop(best)
        while mask and len(grids) < limit:
            bit = mask & -mask
            mask ^= bit
            rows[r], columns[c], boxes[b] = rows[r] ^ bit, columns[c] ^ bit, boxes[b] ^ bit
            cells[i] = str(bit.bit_length() - 1)
            search()
            rows[r], columns[c], boxes[b] = rows[r] ^ bit, columns[c] ^ bit, boxes[b] ^ bit
        free.insert(best, (i, r, c, b))

    search()
    return grids


def solve(question: str) -> str:
    size, text = parsed(_TEXT, question).groups()
    puzzle = text.replace("/", "")
    if len(puzzle) != int(size) ** 2:
        raise Refused(f"roundtrip: {len(puzzle)} cells in a grid of {size} x {size}")
    grids = cover(puzzle, 2)
    if len(grids) != 1:
        raise Refused(f"{'not_unique' if grids else 'impossible'}: at least {len(grids)} solutions")
    return _rows(grids[0], int(size))


def cover(puzzle: str, limit: int) -> list[str]:
    """At most `limit` solutions by exact cover (Knuth 2000): every placement covers a cell, a row's digit, a column's
    and a box's."""
    n = 4 if len(puzzle) == 16 else 9
    box = int(n**0.5)
    covers: dict[tuple[int, int], tuple[int, ...]] = {}
    columns: dict[int, set[tuple[int, int]]] = {k: set() for k in range(4 * n * n)}
    for i, shown in enumerate(puzzle):
        r, c = divmod(i, n)
        for d in range(n) if shown == "." else (int(shown) - 1,):
            b = r // box * box + c // box
            covers[i, d] = (i, n * n + n * r + d, 2 * n * n + n * c + d, 3 * n * n + n * b + d)
            for k in covers[i, d]:
                columns[k].add((i, d))
    chosen: list[tuple[int, int]] = []
    grids: list[str] = []

    def search() -> None:
        if not columns:
            grids.append("".join(str(d + 1) for _, d in sorted(chosen)))
            return
        column = min(columns, key=lambda k: len(columns[k]))
        for placement in list(columns[column]):
            taken = []
            for k in covers[placement]:  # remove the constraint and every placement that meets it
                for other in columns[k]:
                    for j in covers[other]:
                        if j != k and j in columns:
                            columns[j].discard(other)
                taken.append((k, columns.pop(k)))
            chosen.append(placement)
            search()
            chosen.pop()
            for k, placements in reversed(taken):
                columns[k] = placements
                for other in placements:
                    for j in covers[other]:
                        if j != k and j in columns:
                            columns[j].add(other)
            if len(grids) >= limit:
                return

    search()
    return grids
