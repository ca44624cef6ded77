"""The liberties of a group of stones on a small Go board.

Certificate: a flood from the drawn stone against parts joined stone by stone over the text. Difficulty axes: size of
the board.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 4}, {"size": 6}, {"size": 8}, {"size": 11})
CERTIFICATE = ("a flood from the stone", "parts joined over the text")
WORDINGS = Wordings(
    "Go: {board}. How many liberties has the group of the stone on {at}?",
    "On this Go board, {board}, find the number of liberties of the group to which the stone on {at} belongs.",
    "Count the empty points next to the chain of stones that includes {at}: {board}.",
    "The stone on {at} and those of its colour connected to it along lines form a group in {board}. What is the number of its liberties?",
    "In the Go position {board}, which number of liberties does the chain with the stone on {at} have?",
    answer="X and O are stones, _ is empty; rows 1, 2, ... from the top are parted by /, columns are a, b, ... Diagonals do not connect. Answer with one integer.",
    board="[XO_]+(?:/[XO_]+)+",
    at=r"[a-k]\d+",
)
Cell = tuple[int, int]
POINTS = 960  # of all boards drawn for one problem
Spec = tuple[list[str], Cell, int]


def go_liberties(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="go_liberties",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int) -> tuple[str, Spec]:
    """All numbers of liberties among the groups drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec | None]:
        kinds = rng.choice(("XXO__", "XXXO_", "XXXXOO___"))
        rows = ["".join(rng.choice(kinds) for _ in range(size)) for _ in range(size)]
        stones = [(r, c) for r in range(size) for c in range(size) if rows[r][c] != "_"]
        groups = {at: flooded(rows, at) for at in rng.sample(stones, min(6, len(stones)))}
        fits = [at for at, (group, free) in groups.items() if len(group) >= size // 2 and free]
        if not fits:
            return None, None
        at = max(fits, key=lambda x: len(groups[x][0]))
        return len(groups[at][1]), (rows, at, len(groups[at][1]))

    spec = by_answer(rng, once, POINTS // size**2)
    assert spec is not None
    return f"{spec[0]} {spec[1]}", spec


def flooded(rows: Sequence[str], at: Cell) -> tuple[set[Cell], set[Cell]]:
    """The stones of a group and its liberties."""
    colour, group, free, waiting = rows[at[0]][at[1]], {at}, set(), [at]
    while waiting:
        r, c = waiting.pop()
        for p, q in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if 0 <= p < len(rows) and 0 <= q < len(rows):
                if rows[p][q] == "_":
                    free.add((p, q))
                elif rows[p][q] == colour and (p, q) not in group:
                    group.add((p, q))
                    waiting.append((p, q))
    return group, free


def pose(spec: Spec) -> dict[str, Any]:
    rows, (r, c), count = spec
    return {
        "prompt": WORDINGS.write(board="/".join(rows), at=f"{'abcdefghijk'[c]}{r + 1}"),
        "answer": str(count),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    rows = fields["board"].split("/")
    signs = {(r, c): x for r, row in enumerate(rows) for c, x in enumerate(row)}
    part = {cell: cell for cell, x in signs.items() if x != "_"}

    def root(cell: Cell) -> Cell:
        while part[cell] != cell:
            cell = part[cell]
        return cell

    for r, c in part:
        for other in ((r, c + 1), (r + 1, c)):
            if signs.get(other) == signs[r, c]:
                part[root(other)] = root((r, c))
    mine = root((int(fields["at"][1:]) - 1, ord(fields["at"][0]) - 97))
    count = 0
    for (r, c), x in signs.items():
        near = ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1))
        count += x == "_" and any(n in part and root(n) == mine for n in near)
    return str(count)
