"""Items in any order: parted by spaces, commas, "and" or "or", brackets or braces optional, compared as a multiset. Where
the question is solved for one variable, "x = 3, x = 7" and "x_1 = 3, x_2 = 7" are read too.

An item is compared as an exact number where both sides are numbers, else as normalised text (`synth.verify.exact`). An
item given twice is wrong where the reference has it once: a list of guesses wins nothing. The empty set is the word
"none".
"""

from __future__ import annotations

import re
from collections import Counter

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE
from synth.verify.number import solved_for
from synth.verify.ordered_list import MAX_CHARS, items, written

FORM = "number"
GIVES = ("agree",)
EXAMPLE = {"prompt": "Solve x^2 - 10x + 21 = 0.", "answer": "3 7"}


def item_set(problem: Problem, answer: str) -> Score:
    """1 where the items are the reference's, each as often, in any order. `parts["agree"]`: items in both over those in either."""
    if (gold := items(problem.answer)) is None:
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no set")
    answer = _without_names(answer.strip(), problem) if "=" in answer else answer.strip()
    if answer.startswith("{") and answer.endswith("}"):
        answer = answer[1:-1]
    readings = [read for form in written(answer, "and", "or") if (read := items(form)) is not None]
    if not readings:
        return UNPARSABLE
    wanted = Counter(gold)
    agree = max(_share(Counter(given), wanted) for given in readings)
    return Scored(value=float(agree == 1.0), parts={"parsed": 1.0, "agree": agree})


def _share(given: Counter, wanted: Counter) -> float:
    return (given & wanted).total() / either if (either := (given | wanted).total()) else 1.0


def _without_names(text: str, problem: Problem) -> str:
    """ "x = 3, x = 7" as "3, 7" where the question is solved for x."""
    if len(text) > MAX_CHARS or len(name := solved_for(problem.question)) != 1:
        return text
    return re.sub(rf"(?<![A-Za-z0-9]){min(name)}(?:_?[1-9])? ?= ?", "", text)
