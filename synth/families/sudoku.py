"""Sudoku of 4 x 4 and 9 x 9 with exactly one solution.

Certificate: the grid is a shuffled Latin pattern, its solutions counted by a search over bit masks that fills the cell
with the fewest candidates first; from the text all solutions are counted by exact cover (Knuth's Algorithm X). There
must be one. Difficulty axes: size, cells left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"box": 2, "open": 5},
    {"box": 2, "open": 9},
    {"box": 3, "open": 20},
    {"box": 3, "open": 36},
    {"box": 3, "open": 46},
)
CERTIFICATE = ("search over bit masks", "exact cover over the text, all solutions counted")
WORDINGS = Wordings(
    "Complete the {n} x {n} sudoku {grid} by the usual rules.",
    "The sudoku {grid} has {n} rows and {n} columns. What is its solution?",
    "Fill in the digits 1 to {n} in {grid}, each once in every row, column and box.",
    "A newspaper prints the {n} x {n} sudoku {grid} and, a day later, its solution. What is that?",
    "In {grid} every row, column and box is to hold all digits from 1 to {n}. Find the missing ones.",
    answer="Rows are parted by /, and . is an empty cell. Answer with the full grid in the same form.",
    n="[49]",
    grid="[1-9./]+",
)
Spec = tuple[int, str, str]  # (box, solution, puzzle), cells in row order, "." is open


def sudoku(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the full grid, rows separated by "/". `levels` are the rungs of the ladder to draw
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
        "prompt": WORDINGS.write(n=n, grid=_rows(puzzle, n)),
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
    read = WORDINGS.read(question)
    n, puzzle = int(read["n"]), read["grid"].replace("/", "")
    if len(puzzle) != n * n:
        raise Refused(f"roundtrip: {len(puzzle)} cells in a grid of {n} x {n}")
    grids = cover(puzzle, 2)
    if len(grids) != 1:
        raise Refused(f"{'not_unique' if grids else 'impossible'}: at least {len(grids)} solutions")
    return _rows(grids[0], n)


Placement = tuple[int, int]  # (cell, digit)


class _Constraints:
    """A grid as an exact cover (Knuth 2000): every placement meets four constraints, those of its cell, of its row's
    digit, of its column's and of its box's. covers: placement -> the constraints that it meets; open: constraint -> the
    placements that may meet it."""

    def __init__(self, puzzle: str) -> None:
        n = 4 if len(puzzle) == 16 else 9
        box = int(n**0.5)
        self.covers: dict[Placement, tuple[int, ...]] = {}
        self.open: dict[int, set[Placement]] = {k: set() for k in range(4 * n * n)}
        for i, shown in enumerate(puzzle):
            r, c = divmod(i, n)
            for d in range(n) if shown == "." else (int(shown) - 1,):
                b = r // box * box + c // box
                self.covers[i, d] = (i, n * n + n * r + d, 2 * n * n + n * c + d, 3 * n * n + n * b + d)
                for k in self.covers[i, d]:
                    self.open[k].add((i, d))

    def meet(self, placement: Placement) -> list[tuple[int, set[Placement]]]:
        """Remove the constraints that a placement meets, and every placement that meets one of them too."""
        taken = []
        for k in self.covers[placement]:
            for other in self.open[k]:
                for j in self.covers[other]:
                    if j != k and j in self.open:
                        self.open[j].discard(other)
            taken.append((k, self.open.pop(k)))
        return taken

    def restore(self, taken: list[tuple[int, set[Placement]]]) -> None:
        """Undo `meet`."""
        for k, placements in reversed(taken):
            self.open[k] = placements
            for other in placements:
                for j in self.covers[other]:
                    if j != k and j in self.open:
                        self.open[j].add(other)


def cover(puzzle: str, limit: int) -> list[str]:
    """At most `limit` solutions, by exact cover."""
    constraints = _Constraints(puzzle)
    chosen: list[Placement] = []
    grids: list[str] = []

    def search() -> None:
        if not constraints.open:
            grids.append("".join(str(d + 1) for _, d in sorted(chosen)))
            return
        hardest = min(constraints.open.values(), key=len)
        for placement in list(hardest):
            taken = constraints.meet(placement)
            chosen.append(placement)
            search()
            chosen.pop()
            constraints.restore(taken)
            if len(grids) >= limit:
                return

    search()
    return grids
