"""Items in any order: parted by spaces or commas, brackets or braces optional, compared as a multiset.

An item is compared as an exact number where both sides are numbers, else as normalised text (`synth.verify.exact`). An item given
twice is wrong where the reference has it once: a list of guesses wins nothing. The empty set is the word "none".
"""

from __future__ import annotations

from collections import Counter

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG
from synth.verify.ordered_list import items

EXAMPLE = {"prompt": "Solve x^2 - 10x + 21 = 0.", "answer": "3 7"}


def item_set(problem: Problem, answer: str) -> Score:
    """1 where the items are the reference's, each as often, in any order."""
    if (gold := items(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no set")
    answer = answer.strip()
    if answer.startswith("{") and answer.endswith("}"):
        answer = answer[1:-1]
    if (given := items(answer)) is None:
        return UNPARSABLE
    return RIGHT if Counter(given) == Counter(gold) else WRONG
