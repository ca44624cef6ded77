"""How many empty squares some chess pieces attack.

Certificate: rays drawn from the pieces of the values against each empty square of the text, asked whether it is
attacked. Difficulty axes: size of the board, pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 4, "pieces": 1}, {"size": 5, "pieces": 2}, {"size": 6, "pieces": 4}, {"size": 8, "pieces": 6})
CERTIFICATE = ("rays from the pieces", "each empty square of the text")
WORDINGS = Wordings(
    "A chessboard with {n} files and {n} ranks has these pieces: {pieces}. How many empty squares are attacked?",
    "Only {pieces} stand on a board of {n} by {n} squares. Count the empty squares that at least one of them could move to.",
    "A chessboard of {n} x {n} squares holds {pieces} and nothing else. What is the number of empty squares under attack?",
    "Pieces of one colour stand on a board of {n} by {n} squares: {pieces}. Find how many unoccupied squares they can reach in one move.",
    "The board has {n} files (a, b, ...) and {n} ranks. With {pieces} on it, how many free squares can be reached by a single move of some piece?",
    answer="Pieces move as in chess and block each other. Answer with one integer.",
    pieces=r"(?:a|the) (?:rook|bishop|queen|knight|king) on [a-h][1-8](?:(?:, | and )a (?:rook|bishop|queen|knight|king) on [a-h][1-8])*",
)
STRAIGHT, SLANTED = ((0, 1), (1, 0), (0, -1), (-1, 0)), ((1, 1), (1, -1), (-1, 1), (-1, -1))
KINDS = {"rook": STRAIGHT, "bishop": SLANTED, "queen": STRAIGHT + SLANTED, "king": STRAIGHT + SLANTED}
KINDS |= {"knight": ((1, 2), (2, 1), (-1, 2), (-2, 1), (1, -2), (2, -1), (-1, -2), (-2, -1))}
Spec = tuple[int, list[tuple[str, int, int]]]


def chess_attacks(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="chess_attacks",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, pieces: int) -> tuple[str, Spec]:
    n = rng.randint(size, min(8, size + 2))
    places = rng.sample([(x, y) for x in range(n) for y in range(n)], pieces)
    spec = [(rng.choice(sorted(KINDS)), x, y) for x, y in places]
    return f"{n} {sorted(spec)}", (n, spec)


def pose(spec: Spec) -> dict[str, Any]:
    n, pieces = spec
    taken, hit = {(x, y) for _, x, y in pieces}, set()
    for kind, x, y in pieces:
        for p, q in KINDS[kind]:
            for k in range(1, 2 if kind in ("king", "knight") else n):
                square = (x + k * p, y + k * q)
                if square in taken or not (0 <= square[0] < n and 0 <= square[1] < n):
                    break
                hit.add(square)
    told = listed([f"a {kind} on {'abcdefgh'[x]}{y + 1}" for kind, x, y in pieces])
    return {
        "prompt": WORDINGS.write(n=n, pieces=told),
        "answer": str(len(hit)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pieces = re.findall(r"(rook|bishop|queen|knight|king) on ([a-h])(\d)", fields["pieces"])
    placed = {(ord(file) - 96, int(rank)): kind for kind, file, rank in pieces}
    n, count = int(fields["n"]), 0
    for square in ((x, y) for x in range(1, n + 1) for y in range(1, n + 1)):
        count += square not in placed and any(_reaches(kind, at, square, placed) for at, kind in placed.items())
    return str(count)


def _reaches(kind: str, at: tuple[int, int], square: tuple[int, int], placed: dict) -> bool:
    across, up = square[0] - at[0], square[1] - at[1]
    if kind == "knight":
        return across**2 + up**2 == 5
    far = max(abs(across), abs(up))
    if kind == "king":
        return far == 1
    straight, slanted = not (across and up), abs(across) == abs(up)
    if not ((straight and kind != "bishop") or (slanted and kind != "rook")):
        return False
    return all((at[0] + k * across // far, at[1] + k * up // far) not in placed for k in range(1, far))
