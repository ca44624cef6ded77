"""A walk through a grid by letters U, D, L, R: right where it reaches the goal without leaving the grid or entering a
wall.

`rows` are strings of "." (free), "#" (wall), "S" (start) and "G" (goal), "K" (a key) and "D" (a door: a wall until a
key was reached); at most `limit` moves (0: any number up to 1000).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 1000
FORM = "number"
EXAMPLE = {"prompt": "Walk from S to G: S.G", "answer": "RR", "args": {"rows": ["S.G"], "limit": 2}}
_BETWEEN = str.maketrans(dict.fromkeys(",;\n\t->[]()'\"", " ") | {"↑": "U", "↓": "D", "←": "L", "→": "R"})
_WORD = re.compile(r"\b(?:up|down|left|right)\b", re.IGNORECASE)
STEPS = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}


def letters(text: str) -> str | None:
    """The moves as letters: these, small ones, arrows or the words up, down, left, right, parted by spaces, lines, commas,
    "-" or ">", in brackets and quotes or not; None where something else is there."""
    text = _WORD.sub(lambda m: m[0][0], text.translate(_BETWEEN)) if len(text) <= MAX_CHARS else ""
    text = text.replace(" ", "").upper() if text.isascii() else ""
    return text if text and not text.strip("UDLR") else None


def moves(problem: Problem, answer: str, *, rows: Sequence[str] = (), limit: int = 0) -> Score:
    """1 where `answer` leads from S to G. The reference is checked alike."""
    gold = letters(problem.answer)
    if gold is None or not _arrives(gold, rows, limit):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} does not lead to the goal")
    if (given := letters(answer.strip())) is None:
        return UNPARSABLE
    return RIGHT if _arrives(given, rows, limit) else WRONG


def _arrives(walk: str, rows: Sequence[str], limit: int) -> bool:
    place = next(((r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == "S"), None)
    if place is None or (limit and len(walk) > limit):
        return False
    (r, c), key = place, False
    for step in walk:
        r, c = r + STEPS[step][0], c + STEPS[step][1]
        if not free(rows, r, c, key):
            return False
        key = key or rows[r][c] == "K"
    return rows[r][c] == "G"


def free(rows: Sequence[str], r: int, c: int, key: bool) -> bool:
    """Whether a walker may stand there; a door is open to who has the key."""
    return 0 <= r < len(rows) and 0 <= c < len(rows[r]) and rows[r][c] != "#" and (rows[r][c] != "D" or key)
