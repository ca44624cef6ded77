"""Absolute ratings of answers by attribute, for reward models that learn several at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.preferences.rated import rated
from synth.types import PreferencePair
from synth.verify import extract_answer
from tasks.core.errors import UserError
from training.preference.units import words


def ratings(pairs: Sequence[PreferencePair]) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Pair id -> [2, k] ratings of the chosen and the rejected answer, NaN where there is none; and the k attributes'
    names.

    The column "ratings" of a pair, {attribute: [chosen, rejected]}, is read where any pair has it; and always three
    attributes that need no rater: preferred (1 and 0), length (words), answers (whether it says an answer). Raises
    UserError for a rating that is no pair of numbers.
    """
    given = sorted({name for p in pairs for name in p.columns.get("ratings", {})} - {"preferred", "length", "answers"})
    out = {}
    for p in pairs:
        marks = [(1.0, 0.0), *(tuple(float(f(t)) for t in (p.chosen, p.rejected)) for f in (_length, _answers))]
        try:
            mine = rated(p)
        except ValueError as e:
            raise UserError(str(e)) from e
        marks += [mine.get(name, (np.nan, np.nan)) for name in given]
        out[p.id] = np.array(marks, dtype=np.float64).T
    return out, ("preferred", "length", "answers", *given)


def _length(text: str) -> int:
    return len(words(text))


def _answers(text: str) -> bool:
    return extract_answer(text) is not None
