"""Whole scores of several aspects, 1 to 5 each, against the reference's.

He et al. 2025, "VideoScore2: Think before You Score in Generative Video Evaluation" (arXiv 2509.22799), read from the
abstract: the credit for a score that is off by one is our reading.

    value = mean over the aspects of   1 (exact), 1/2 (off by one), 0 (further off)

An answer is as many whole numbers as the reference has, parted by spaces or commas. parts: `exact` (share of aspects that
are exact), `near` (share that are off by at most one), `every` (1 if all are exact), `score_1`, `score_2`, `score_3`
(1 where the first, second, third is exact, 0 for an aspect that the reference lacks).
"""

from __future__ import annotations

import re

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

FORM = "literal"
GIVES = ("exact", "near", "every", "score_1", "score_2", "score_3")
EXAMPLE = {"prompt": "Rate looks, caption and motion from 1 to 5.", "answer": "4 5 3"}
_SCORES = re.compile(r" *[1-5]([ ,]+[1-5]){0,8} *")


def read(text: str) -> list[int] | None:
    """The scores of a text; None where it is no list of up to nine of them."""
    return [int(x) for x in re.findall(r"\d", text)] if len(text) < 100 and _SCORES.fullmatch(text) else None


def scores(problem: Problem, answer: str) -> Score:
    if not (gold := read(problem.answer)):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no list of scores from 1 to 5")
    given = read(answer)
    if not given or len(given) != len(gold):
        return UNPARSABLE
    off = [abs(a - b) for a, b in zip(given, gold, strict=True)]
    exact = [float(x == 0) for x in off]
    parts = {
        "parsed": 1.0,
        "exact": sum(exact) / len(off),
        "near": sum(x <= 1 for x in off) / len(off),
        "every": float(all(exact)),
        **{f"score_{i}": x for i, x in enumerate((exact + [0.0] * 3)[:3], 1)},
    }
    return Scored(value=sum(max(0.0, 1 - x / 2) for x in off) / len(off), parts=parts)
