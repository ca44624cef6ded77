"""Which moves win a game of noughts and crosses.

Certificate: values of positions by bit masks against lines of play followed over the text's board. Difficulty axes:
empty squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"empty": 3}, {"empty": 5}, {"empty": 6}, {"empty": 7})
CERTIFICATE = ("values by bit masks", "lines of play over the text's board")
WORDINGS = Wordings(
    "Noughts and crosses: {board}. {who} is to move. Which squares win for {who} by force?",
    "In this game of tic-tac-toe, {board}, it is the turn of {who}. Which moves lead to a certain win, whatever the other side does?",
    "The board is {board} and {who} moves next. List every square with which {who} wins against any defence, at once or later.",
    "Tic-tac-toe position {board}, {who} to play. Name all moves after which {who} can force three in a row.",
    "{who} is about to play on the board {board}. On which squares does a move win for sure with best play from then on?",
    answer="Squares are numbered 1 to 9 row by row, _ is empty, rows are parted by /. Answer with the numbers, parted by spaces.",
    board="[XO_]{3}/[XO_]{3}/[XO_]{3}",
    who="[XO]",
)
LINES = (0b111, 0b111000, 0b111000000, 0b1001001, 0b10010010, 0b100100100, 0b100010001, 0b1010100)
BOARDS = 20
Spec = tuple[str, str, list[int]]


@cache
def value(mine: int, other: int) -> int:
    """1, 0 or -1 for who is to move, by the squares of both sides."""
    if any(other & line == line for line in LINES):
        return -1
    free = [s for s in range(9) if not (mine | other) >> s & 1]
    return max((-value(other, mine | 1 << s) for s in free), default=0)


def tic_tac_toe(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: numbers of squares. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="tic_tac_toe",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, empty: int) -> tuple[str, Spec]:
    """All sets of winning squares among the boards drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec | None]:
        order = rng.sample(range(9), 9 - empty)
        first = rng.choice("XO")
        sides = {"X": 0, "O": 0}
        for i, square in enumerate(order):
            sides["XO"["XO".index(first) ^ (i % 2)]] |= 1 << square
        who = "XO"["XO".index(first) ^ (len(order) % 2)]
        mine, other = sides[who], sides["XO".replace(who, "")]
        if any(side & line == line for side in (mine, other) for line in LINES):
            return None, None
        wins = [s for s in range(9) if not (mine | other) >> s & 1 and value(other, mine | 1 << s) == -1]
        if not 0 < len(wins) < empty:
            return None, None
        board = "".join("X" if sides["X"] >> s & 1 else "O" if sides["O"] >> s & 1 else "_" for s in range(9))
        return sum(1 << s for s in wins), (board, who, wins)

    spec = by_answer(rng, once, BOARDS)
    assert spec is not None
    return f"{spec[0]} {spec[1]}", spec


def pose(spec: Spec) -> dict[str, Any]:
    board, who, wins = spec
    return {
        "prompt": WORDINGS.write(board=f"{board[:3]}/{board[3:6]}/{board[6:]}", who=who),
        "answer": " ".join(str(s + 1) for s in wins),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    board, who = fields["board"].replace("/", ""), fields["who"]

    def row_of(side: str, cells: str) -> bool:
        rows = [cells[i : i + 3] for i in (0, 3, 6)] + [cells[i::3] for i in range(3)] + [cells[::4], cells[2:7:2]]
        return side * 3 in rows

    def wins(cells: str, place: int, side: str) -> bool:
        """Whether a move of this side wins: at once, or because every reply has an answer that wins."""
        after = cells[:place] + side + cells[place + 1 :]
        other = "O" if side == "X" else "X"
        if row_of(side, after):
            return True
        replies = [i for i, x in enumerate(after) if x == "_"]
        if not replies:
            return False
        for reply in replies:
            then = after[:reply] + other + after[reply + 1 :]
            if row_of(other, then) or not any(wins(then, i, side) for i, x in enumerate(then) if x == "_"):
                return False
        return True

    return " ".join(str(i + 1) for i, x in enumerate(board) if x == "_" and wins(board, i, who))
