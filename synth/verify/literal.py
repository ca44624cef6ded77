"""The same characters, letter case and punctuation included: for edited strings and for spans of a text.

Only space and what wraps the whole answer is forgiven (quotes, backticks, a fence, \\text{}), where neither the question
nor the reference holds such a sign, and a full stop at the end of letters, digits and spaces.
"""

from __future__ import annotations

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 2000
FORM = "literal"
EXAMPLE = {"prompt": "Reverse the word atom.", "answer": "mota"}


def literal(problem: Problem, answer: str) -> Score:
    """1 where `answer`, stripped, is the reference to the character."""
    if not (gold := problem.answer.strip()):
        return Unscorable(reason="bad_reference: the reference is empty")
    given = answer.strip() if len(answer) <= MAX_CHARS else ""
    if not given:
        return UNPARSABLE
    return RIGHT if given == gold or given == f'"{gold}"' else WRONG
