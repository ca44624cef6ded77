"""Count a knight's routes of a given length.

Certificate: a table forwards from the drawn square against routes followed back from the text's goal. Difficulty
axes: size of the board, moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 4, "moves": 3}, {"size": 5, "moves": 3}, {"size": 6, "moves": 4}, {"size": 8, "moves": 5})
CERTIFICATE = ("a table forwards", "routes followed back")
WORDINGS = Wordings(
    "A knight stands on {a} of a board of {n} by {n} squares. In how many ways can it reach {b} with its move number {k}?",
    "On a board of {n} x {n} squares, count the sequences of exactly {k} knight moves that lead from {a} to {b}.",
    "How many different routes of {k} moves does a chess knight have from {a} to {b} on an empty board with {n} files and {n} ranks?",
    "A knight makes exactly {k} moves on an empty chessboard of {n} by {n} squares, from {a} to {b}. Find the number of ways.",
    "Starting from {a}, a knight jumps {k} times and lands on {b} at the end; the board has {n} files and {n} ranks. How many such walks are there?",
    answer="It may come back to a square, the goal too. Answer with one integer.",
    a="[a-h][1-8]",
    b="[a-h][1-8]",
)
Square = tuple[int, int]
Spec = tuple[int, Square, Square, int]
JUMPS = ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1))


def knight_routes(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="knight_routes",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, moves: int) -> tuple[str, Spec]:
    while True:
        n, k = rng.randint(size, min(8, size + 2)), rng.randint(moves, moves + 1)
        a, b = ((rng.randrange(n), rng.randrange(n)) for _ in range(2))
        if routes(n, a, b, k) > 1:
            return f"{n} {k} {sorted((a, b))}", (n, a, b, k)


def routes(n: int, a: Square, b: Square, k: int) -> int:
    ways = {a: 1}
    for _ in range(k):
        after: dict[Square, int] = {}
        for (x, y), count in ways.items():
            for p, q in JUMPS:
                if 0 <= x + p < n and 0 <= y + q < n:
                    after[x + p, y + q] = after.get((x + p, y + q), 0) + count
        ways = after
    return ways.get(b, 0)


def pose(spec: Spec) -> dict[str, Any]:
    n, a, b, k = spec
    name = lambda square: f"{'abcdefgh'[square[0]]}{square[1] + 1}"  # noqa: E731
    return {
        "prompt": WORDINGS.write(n=n, a=name(a), b=name(b), k=k),
        "answer": str(routes(n, a, b, k)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    n, start = int(fields["n"]), (ord(fields["a"][0]) - 96, int(fields["a"][1]))

    @cache
    def from_start(x: int, y: int, left: int) -> int:
        if left == 0:
            return int((x, y) == start)
        total = 0
        for p in range(1, n + 1):
            for q in range(1, n + 1):
                if (p - x) ** 2 + (q - y) ** 2 == 5:
                    total += from_start(p, q, left - 1)
        return total

    return str(from_start(ord(fields["b"][0]) - 96, int(fields["b"][1]), int(fields["k"])))
