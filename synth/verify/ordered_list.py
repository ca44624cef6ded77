"""A list in a given order: items parted by spaces or commas, brackets optional, compared one by one.

An item is compared as an exact number where both sides are numbers (`07` is 7), else as normalised text.
"""

from __future__ import annotations

from fractions import Fraction

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE
from synth.verify.exact import normalise
from synth.verify.number import parse

MAX_CHARS = 2000
EXAMPLE = {"prompt": "Sort 7 3 10.", "answer": "3 7 10"}


def items(text: str) -> tuple[Fraction | str, ...] | None:
    """The items as values; None where `text` is empty, too long, or holds an empty item ("1,,2")."""
    text = text.strip() if len(text) <= MAX_CHARS else ""
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1].strip()
    parts = text.split(",") if "," in text else text.split()
    values = tuple(number[0] if (number := parse(part)) else normalise(part) for part in parts)
    return values if values and "" not in values else None


def ordered_list(problem: Problem, answer: str) -> Score:
    """1 where the items equal the reference's in number, value and order. `parts["in_place"]`: share of places that are."""
    if (gold := items(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no list")
    if (given := items(answer)) is None:
        return UNPARSABLE
    in_place = sum(a == b for a, b in zip(gold, given, strict=False)) / len(gold)
    return Scored(value=float(given == gold), parts={"parsed": 1.0, "in_place": in_place})
