"""An order of things under constraints (a topological order): any order that keeps them is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG
from synth.verify.path import nodes

FORM = "number"
EXAMPLE = {"prompt": "Order A, B, C: A before B.", "answer": "C A B", "args": {"before": [["A", "B"]]}}


def order(problem: Problem, answer: str, *, before: Sequence[Sequence[str]] = ()) -> Score:
    """1 where `answer` has each item of the reference once, the first of every pair of `before` ahead of the second."""
    gold = nodes(problem.answer)
    if not gold or not _keeps(gold, gold, before):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} breaks its own constraints")
    if not (given := nodes(answer)):
        return UNPARSABLE
    return RIGHT if _keeps(given, gold, before) else WRONG


def _keeps(given: Sequence[str], gold: Sequence[str], before: Sequence[Sequence[str]]) -> bool:
    at = {name: i for i, name in enumerate(given)}
    return Counter(given) == Counter(gold) and all(a in at and b in at and at[a] < at[b] for a, b in before)
