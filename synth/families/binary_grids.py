"""Binary grids (takuzu): no three equal cells in a row, as many zeros as ones in every row and column; exactly one
completion.

Certificate: every full grid of the size is enumerated once and the shown cells select among them by intersecting bit
sets; from the text a search cell by cell counts all completions, and there must be one. Difficulty axes: size; cells
are hidden until one more would be ambiguous."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 4, "shown": 8}, {"size": 4, "shown": 0}, {"size": 6, "shown": 20}, {"size": 6, "shown": 0})
CERTIFICATE = (
    "all full grids, those with the shown cells",
    "search cell by cell over the text, all completions counted",
)
WORDINGS = Wordings(
    "Fill the {n} x {n} grid {grid} so that each row and column has as many 0 as 1 and no three equal neighbours.",
    "Complete the takuzu {grid} of {n} x {n} cells: no three equal digits next to each other, and as many 0 as 1 in every row and every column.",
    "The grid {grid} needs a 0 or a 1 in each empty cell. Each of its {n} rows and {n} columns must hold as many 0 as 1, and nowhere may three equal digits follow one another.",
    "In the {n} x {n} grid {grid} three equal digits in succession are forbidden, in rows and in columns, and every row and column has as many 0 as 1. Complete it.",
    "Solve the binary puzzle {grid} of {n} x {n} cells: all rows and columns hold as many 0 as 1 and no run of three equal digits.",
    answer="Rows are parted by /, and . is an empty cell. Answer with the full grid in the same form.",
    n=r"\d",
    grid="[01.]+(?:/[01.]+)+",
)
Spec = tuple[int, str, str]


def binary_grids(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the full grid, rows separated by "/". `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="binary_grids",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def _fits(line: str) -> bool:
    return line.count("0") == line.count("1") and "000" not in line and "111" not in line


@cache
def grids(size: int) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Every full grid, and for every cell the set (bits of an integer) of the grids that have 0 there and of those that
    have 1."""
    lines = [int(x, 2) for x in map("".join, product("01", repeat=size)) if _fits(x)]
    every = (1 << size) - 1
    partial: list[tuple[int, ...]] = [()]
    for _ in range(size):  # a row may not be the third equal one in any column: a bit set in all three, or in none
        partial = [
            (*rows, line)
            for rows in partial
            for line in lines
            if len(rows) < 2 or not (rows[-1] & rows[-2] & line or every & ~(rows[-1] | rows[-2] | line))
        ]
    written = ("".join(f"{row:0{size}b}" for row in rows) for rows in partial)
    full = tuple(g for g in written if all(g[k::size].count("1") == size // 2 for k in range(size)))
    return full, tuple((_bits(g[i] == "0" for g in full), _bits(g[i] == "1" for g in full)) for i in range(size * size))


def _bits(flags: Iterable[bool]) -> int:
    """The integer whose bit k is flag k."""
    return int("".join("01"[flag] for flag in flags)[::-1], 2)


def draw(rng: Random, *, size: int, shown: int) -> tuple[str, Spec]:
    full, sets = grids(size)
    solution = rng.choice(full)
    cells = list(range(size * size))
    rng.shuffle(cells)
    kept = list(cells)
    for i in cells:  # hide a cell where the others still leave one grid
        if len(kept) <= shown:
            break
        left = -1
        for j in kept:
            if j != i:
                left &= sets[j][solution[j] == "1"]
        if left.bit_count() == 1:
            kept.remove(i)
    chosen = set(kept)
    puzzle = "".join(d if i in chosen else "." for i, d in enumerate(solution))
    return puzzle, (size, solution, puzzle)


def _rows(cells: str, size: int) -> str:
    return "/".join(cells[i : i + size] for i in range(0, size * size, size))


def pose(spec: Spec) -> dict[str, Any]:
    size, solution, puzzle = spec
    prompt = WORDINGS.write(n=size, grid=_rows(puzzle, size))
    return {"prompt": prompt, "answer": _rows(solution, size), "verifier": "grid"}


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    n, shown = int(read["n"]), read["grid"].replace("/", "")
    if len(shown) != n * n:
        raise Refused(f"roundtrip: {len(shown)} cells in a grid of {n} x {n}")
    cells, solutions = list(shown), []

    def allowed(i: int, c: str) -> bool:
        """Whether `c` at cell i keeps its row and column possible; "." are cells not filled yet."""
        r, k = divmod(i, n)
        for line, at in ((cells[r * n : r * n + n], k), (cells[k::n], r)):
            line[at] = c
            if line.count(c) > n // 2 or any(
                line[a] == line[a + 1] == line[a + 2] == c for a in range(max(0, at - 2), min(n - 2, at + 1))
            ):
                return False
        return True

    def search(i: int) -> None:
        while i < n * n and shown[i] != ".":
            i += 1
        if i == n * n:
            solutions.append("".join(cells))
            return
        for c in "01":
            if len(solutions) < 2 and allowed(i, c):
                cells[i] = c
                search(i + 1)
        cells[i] = "."

    if all(c == "." or allowed(i, c) for i, c in enumerate(shown)):
        search(0)
    if len(solutions) != 1:
        raise Refused(f"{'not_unique' if solutions else 'impossible'}: at least {len(solutions)} completions")
    return _rows(solutions[0], n)
