"""Complete a placement of n queens of which no two attack one another; the queens that stand leave exactly one way.

Certificate: all solutions of a board are enumerated once by permutations with distinct diagonals, and the puzzle keeps
queens of one until no other has them; from the text a search over bit masks counts all completions, and there must be
one. Difficulty axes: size of the board."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 6}, {"size": 8}, {"size": 9}, {"size": 10})
CERTIFICATE = (
    "all placements of the board, those with the shown queens",
    "search over bit masks from the text, all counted",
)
WORDINGS = Wordings(
    "Place {n} queens on a {n} x {n} board so that none attacks another, one for each row: {rows}.",
    "A chess board of {n} x {n} squares needs {n} queens of which no two attack each other. The columns of those that stand, row by row: {rows}. Where do the others go?",
    "Complete {rows} to a solution of the puzzle of {n} queens, of which no two share a row, column or diagonal.",
    "On a {n} x {n} board every row gets one queen, and no queen may attack another. So far the rows hold {rows}. Fill in the rest.",
    "{n} queens stand on a {n} x {n} board, one in each row, and none attacks another. Their columns are {rows}. Find the unknown ones.",
    answer="Columns are counted from 1, and ? is a row whose queen is missing. Answer with the columns of all rows, parted by spaces.",
    n=r"\d+",
    rows=r"[\d?]+(?: [\d?]+)+",
)


def n_queens(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the column of the queen of every row. `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="n_queens",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


@cache
def placements(size: int) -> tuple[tuple[int, ...], ...]:
    """Every solution, as the column (from 1) of each row: 4, 92, 352 and 724 for 6, 8, 9 and 10."""
    boards: list[tuple[int, ...]] = [()]
    for row in range(size):
        boards = [
            p + (c,)
            for p in boards
            for c in range(1, size + 1)
            if all(c != q and abs(c - q) != row - r for r, q in enumerate(p))
        ]
    return tuple(boards)


def draw(rng: Random, *, size: int) -> tuple[str, tuple[int, tuple[int, ...], tuple[int, ...]]]:
    every = placements(size)
    solution = rng.choice(every)
    shown: list[int] = []
    left = list(every)
    while len(left) > 1:  # show one more queen until no other solution has them all
        shown.append(rng.choice([r for r in range(size) if r not in shown]))
        left = [p for p in left if p[shown[-1]] == solution[shown[-1]]]
    shown += rng.sample([r for r in range(size) if r not in shown], rng.randint(0, max(0, size - len(shown) - 3)))
    return f"{size} {solution} {sorted(shown)}", (size, solution, tuple(sorted(shown)))


def pose(spec: tuple[int, tuple[int, ...], tuple[int, ...]]) -> dict[str, Any]:
    size, solution, shown = spec
    rows = " ".join(str(c) if r in shown else "?" for r, c in enumerate(solution))
    return {
        "prompt": WORDINGS.write(n=size, rows=rows),
        "answer": " ".join(map(str, solution)),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    size, shown = int(read["n"]), read["rows"].split()
    if len(shown) != size:
        raise Refused(f"roundtrip: {len(shown)} rows on a board of {size} x {size}")
    solutions: list[list[int]] = []

    def search(row: int, columns: int, left: int, right: int, placed: list[int]) -> None:
        if row == size:
            solutions.append(placed)
            return
        free = ((1 << size) - 1) & ~(columns | left | right)
        if shown[row] != "?":
            free &= 1 << (int(shown[row]) - 1)
        while free:
            bit = free & -free
            free ^= bit
            search(row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1, [*placed, bit.bit_length()])

    search(0, 0, 0, 0, [])
    if len(solutions) != 1:
        raise Refused(f"{'not_unique' if solutions else 'impossible'}: {len(solutions)} completions")
    return " ".join(map(str, solutions[0]))
