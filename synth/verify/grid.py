"""A filled grid, row by row: rows parted by spaces, lines, "/" or "|", cells by nothing, spaces or commas, in brackets and quotes or not. Only the
sequence of cells counts."""

from __future__ import annotations

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

MAX_CHARS = 1000
FORM = "number"
EXAMPLE = {"prompt": "Complete the grid.", "answer": "1234/3412/2143/4321"}
GIVES = ("agree",)
_BETWEEN = str.maketrans("", "", " \t\n/|,;[](){}\"'")


def cells(text: str) -> str:
    """The cells in row order; empty where there is none or the text is too long."""
    return text.translate(_BETWEEN) if len(text) <= MAX_CHARS else ""


def grid(problem: Problem, answer: str) -> Score:
    """1 where every cell is the reference's. `parts["agree"]`: share of cells that are."""
    if not (gold := cells(problem.answer)):
        return Unscorable(reason="bad_reference: the reference has no cells")
    if not (given := cells(answer)):
        return UNPARSABLE
    agree = sum(a == b for a, b in zip(gold, given, strict=False)) / len(gold)
    return Scored(value=float(given == gold), parts={"parsed": 1.0, "agree": agree})
