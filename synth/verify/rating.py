"""A rating, compared with the reference's as an exact number; both are handed on for rewards that compare items.

1 where the number is the reference's. parts: `rating` and `wanted`, the two numbers.
"""

from __future__ import annotations

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE
from synth.verify.number import parse

FORM = "number"
GIVES = ("rating", "wanted", "rated")
EXAMPLE = {"prompt": "How warm is the picture, from 1 to 9?", "answer": "7"}


def rating(problem: Problem, answer: str) -> Score:
    if (gold := parse(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no number")
    if (given := parse(answer)) is None:
        return UNPARSABLE
    parts = {"parsed": 1.0, "rated": 1.0, "rating": float(given[0]), "wanted": float(gold[0])}
    return Scored(value=float(given[0] == gold[0]), parts=parts)
