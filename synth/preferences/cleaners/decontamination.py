"""Pairs that hold what a model will be measured with.

The column `overlap` is the greatest share of the word n-grams of any text of the pair that stand in one protected text,
or of a protected text's that stand in it (`_overlap.py`): the stage computes it from the files that are to be
protected. n-grams as in the GPT-3 paper (arXiv:2005.14165, 2020), 8 words as in "PaLM" (2204.02311); a text shorter
than n words is one gram.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.preferences.cleaners._columns import probability, verdict
from synth.types import Decision, PreferencePair

NEEDS = {"overlap"}
ALONE = True  # each pair is judged by itself


def decontamination(pairs: Sequence[PreferencePair], *, threshold: float = 0.5) -> Sequence[Decision]:
    """Decision "remove" with reason contaminated where overlap >= threshold, else "keep" with unseen; score = overlap.

    Raises ValueError where a pair lacks the column, or for a threshold outside (0, 1].
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"decontamination: the threshold {threshold} must lie in (0, 1]")
    shares = [probability(pair, "overlap") for pair in pairs]
    return [verdict("decontamination", s >= threshold, "remove", ("contaminated", "unseen"), s) for s in shares]
