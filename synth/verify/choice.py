"""One letter of a multiple choice: "B", "b", "(B)", "[B]", "B.", "B)", "B:" or "Option B". A letter with the option's text behind it is not one
letter."""

from __future__ import annotations

import re

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

FORM = "text"
EXAMPLE = {"prompt": "Which is prime? A) 7 B) 8 C) 9 D) 10", "answer": "A"}
_LETTER = re.compile(r"(?:[Oo]ption )?(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])[.):]?)")


def letter(text: str) -> str | None:
    """The letter, upper case; None where `text` is not one letter."""
    match = _LETTER.fullmatch(text.strip()) if len(text) <= 20 else None
    return (match[1] or match[2] or match[3]).upper() if match else None


def choice(problem: Problem, answer: str) -> Score:
    """1 where the letter is the reference's."""
    if (gold := letter(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no letter")
    if (given := letter(answer)) is None:
        return UNPARSABLE
    return RIGHT if given == gold else WRONG
