"""Count the ways to cover a small board with dominoes.

Certificate: a table over the frontier of the rows against dominoes laid one by one over the text's board. Difficulty
axes: rows, columns, the most squares taken out.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"rows": 3, "columns": 4, "holes": 4},
    {"rows": 4, "columns": 4, "holes": 4},
    {"rows": 4, "columns": 5, "holes": 2},
    {"rows": 5, "columns": 6, "holes": 4},
)
CERTIFICATE = ("a table over the frontier", "dominoes laid one by one")
WORDINGS = Wordings(
    "In how many ways can dominoes of two squares cover all free squares (o) of the board {board}?",
    "Count the tilings of the free squares (o) of {board} by dominoes, each covering two squares side by side or one above the other.",
    "The board {board} has free squares (o). How many ways are there to cover each of them once with dominoes of two neighbouring squares?",
    "A board has free squares (o) and holes (#): {board}. Find the number of ways to fill the free squares with dominoes.",
    "Dominoes cover two free squares that share a side. In how many ways do they fill all free squares (o) of the board {board}?",
    answer="Rows are parted by /, # is a hole, turned tilings count as different. Answer with one integer.",
    board="[o#/]+",
)
BOARDS = 40
Spec = tuple[str, ...]


def domino_tilings(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="domino_tilings",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, columns: int, holes: int) -> tuple[str, Spec]:
    """All numbers of tilings among the boards drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec]:
        taken = set(rng.sample(range(rows * columns), rng.randrange(2, holes + 1, 2)))
        spec = tuple("".join("#" if r * columns + c in taken else "o" for c in range(columns)) for r in range(rows))
        ways = tilings(spec)
        return (ways if ways > 1 else None), spec

    spec = by_answer(rng, once, BOARDS)
    return f"{spec}", spec


def tilings(board: Spec) -> int:
    """Bit c of the frontier: the next square of column c is covered from above or from the left."""
    width, states = len(board[0]), {0: 1}
    for row in board:
        for c, x in enumerate(row):
            after: dict[int, int] = {}
            for covered, n in states.items():
                clear = covered & ~(1 << c)
                if covered >> c & 1 or x == "#":
                    follow = [clear] if not (covered >> c & 1 and x == "#") else []
                else:
                    follow = [clear | 1 << c]  # down
                    if c + 1 < width and row[c + 1] == "o" and not covered >> (c + 1) & 1:
                        follow.append(clear | 1 << (c + 1))
                for state in follow:
                    after[state] = after.get(state, 0) + n
            states = after
    return states.get(0, 0)


def pose(spec: Spec) -> dict[str, Any]:
    return {
        "prompt": WORDINGS.write(board="/".join(spec)),
        "answer": str(tilings(spec)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    rows = WORDINGS.read(question)["board"].split("/")

    def laid(free: frozenset[tuple[int, int]]) -> int:
        if not free:
            return 1
        r, c = min(free)
        return sum(laid(free - {(r, c), other}) for other in ((r, c + 1), (r + 1, c)) if other in free)

    return str(laid(frozenset((r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == "o")))
