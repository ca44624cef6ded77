"""A Latin square from some of its numbers and signs of inequality.

Certificate: all Latin squares of the size, of which clues are added until one is left, against a search over the
text that counts all. Difficulty axes: size, shown numbers at most.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 3, "shown": 2}, {"size": 4, "shown": 6}, {"size": 4, "shown": 3}, {"size": 4, "shown": 0})
CERTIFICATE = ("all Latin squares of the size", "a search over the text, all counted")
WORDINGS = Wordings(
    "Futoshiki of {n} by {n}: every row and column holds 1 to {n} once. Given: {clues}. Solve it.",
    "Fill a {n} x {n} grid with the numbers 1 to {n}, each once in every row and every column, so that {clues}.",
    "A {n} by {n} Latin square of the numbers 1 to {n} satisfies {clues}. Find it.",
    "In a grid with {n} rows and {n} columns no number from 1 to {n} repeats in a row or column. Clues: {clues}. What is the grid?",
    "Find the only arrangement of 1 to {n} in each row and column of a {n} by {n} grid with {clues}.",
    answer="Columns are a, b, ... from the left, rows 1, 2, ... from the top. Answer with the rows, parted by /.",
    clues=r"[a-d][1-4] (?:= \d|[<>] [a-d][1-4])(?:, [a-d][1-4] (?:= \d|[<>] [a-d][1-4]))*",
)
Cell = tuple[int, int]
Spec = tuple[Sequence[str], list[str]]


@cache
def squares(n: int) -> tuple[tuple[str, ...], ...]:
    """Every Latin square: 12 of three rows, 576 of four."""
    rows, out = ["".join(p) for p in permutations("1234"[:n])], [()]
    for _ in range(n):
        out = [
            (*s, row)
            for s in out
            for row in rows
            if all(a != b for above in s for a, b in zip(above, row, strict=True))
        ]
    return tuple(out)


def holds(square: Sequence[str], clue: str) -> bool:
    cell, sign, other = clue.split()
    value = square[int(cell[1]) - 1]["abcd".index(cell[0])]
    if sign == "=":
        return value == other
    beside = square[int(other[1]) - 1]["abcd".index(other[0])]
    return value < beside if sign == "<" else value > beside


def futoshiki(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a grid. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="futoshiki",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, shown: int) -> tuple[str, Spec]:
    square = rng.choice(squares(size))
    cells = [(r, c) for r in range(size) for c in range(size)]
    name = lambda r, c: f"{'abcd'[c]}{r + 1}"  # noqa: E731
    pairs = [(a, b) for a in cells for b in cells if a < b and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1]
    signs = [f"{name(*a)} {'<' if square[a[0]][a[1]] < square[b[0]][b[1]] else '>'} {name(*b)}" for a, b in pairs]
    numbers = [f"{name(r, c)} = {square[r][c]}" for r, c in cells]
    rng.shuffle(signs)
    rng.shuffle(numbers)
    left, clues = list(squares(size)), []
    for clue in [*numbers[:shown], *signs, *numbers[shown:]]:
        after = [s for s in left if holds(s, clue)]
        if len(after) < len(left):
            left, clues = after, [*clues, clue]
    return f"{sorted(clues)} {square}", (square, clues)


def pose(spec: Spec) -> dict[str, Any]:
    square, clues = spec
    return {
        "prompt": WORDINGS.write(n=len(square), clues=", ".join(clues)),
        "answer": "/".join(square),
        "verifier": "grid",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    n = int(fields["n"])
    given = {cell: int(v) for cell, v in re.findall(r"([a-d][1-4]) = (\d)", fields["clues"])}
    less = [
        (a, b) if s == "<" else (b, a) for a, s, b in re.findall(r"([a-d][1-4]) ([<>]) ([a-d][1-4])", fields["clues"])
    ]
    order = [f"{c}{r}" for r in range(1, n + 1) for c in "abcd"[:n]]
    solutions: list[str] = []

    def fill(values: dict[str, int]) -> None:
        if len(values) == n * n:
            solutions.append("/".join("".join(str(values[f"{c}{r}"]) for c in "abcd"[:n]) for r in range(1, n + 1)))
            return
        cell = order[len(values)]
        for v in range(1, n + 1):
            if given.get(cell, v) == v and all(v != w for x, w in values.items() if x[0] == cell[0] or x[1] == cell[1]):
                now = {**values, cell: v}
                if all(now.get(a, 0) < now.get(b, n + 1) for a, b in less):
                    fill(now)

    fill({})
    if len(solutions) != 1:
        raise Refused(f"{'not_unique' if solutions else 'impossible'}: {len(solutions)} grids fit")
    return solutions[0]
