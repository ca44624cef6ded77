"""A subset in which the longer side is chosen as often as not: the intervention on data of "A Long Way to Go"
(arXiv:2310.03716, 2023).

Pairs are put into `bins` of equal number by |length(chosen) - length(rejected)| in characters. Within each bin, where
the longer side is chosen in k of n pairs, the surplus |2k - n| of the greater kind goes: those that length alone
explains best, the largest differences first. Pairs of equal length stay. It removes right pairs too: use it where
length is known not to tell quality.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.preferences.cleaners._columns import verdict
from synth.types import Decision, PreferencePair


def length_balance(pairs: Sequence[PreferencePair], *, bins: int = 10) -> Sequence[Decision]:
    """Decision "remove" with reason surplus_longer or surplus_shorter, else "keep"; score = length of chosen minus
    rejected, characters.

    Raises ValueError for bins < 1.
    """
    if bins < 1:
        raise ValueError(f"length_balance: bins = {bins} must be at least 1")
    difference = np.array([len(p.chosen) - len(p.rejected) for p in pairs], dtype=int)
    unequal = sorted((i for i in range(len(pairs)) if difference[i]), key=lambda i: (abs(difference[i]), pairs[i].id))
    gone: set[int] = set()
    for rows in np.array_split(np.array(unequal, dtype=int), bins):
        longer = [int(i) for i in rows if difference[i] > 0]
        shorter = [int(i) for i in rows if difference[i] < 0]
        more, fewer = (longer, shorter) if len(longer) > len(shorter) else (shorter, longer)
        gone |= set(more[len(fewer) :])
    reasons = {True: "surplus_longer", False: "surplus_shorter"}
    return [
        verdict("length_balance", i in gone, "remove", (reasons[bool(d > 0)], "balanced"), d)
        for i, d in enumerate(difference)
    ]
