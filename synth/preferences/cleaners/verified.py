"""Pairs whose label a program disproves: the rejected side is certified better.

Reads the column `anchor` or the verified margin, score(chosen) - score(rejected), of the problem's own verifier. The
proof is as good as the verifier and needs no second opinion; the same pairs are anchors for the cleaner `annotators`.
An unverified pair is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.preferences.cleaners._columns import Action, anchor, verdict
from synth.types import Decision, PreferencePair

ALONE = True  # each pair is judged by itself


def verified(pairs: Sequence[PreferencePair], *, action: Action = "remove") -> Sequence[Decision]:
    """Decision `action` with reason proven_wrong, else "keep" with proven_right or not_verified; score = 1, 0 or -1.

    Raises ValueError where an anchor is no number.
    """
    known = [anchor(pair) for pair in pairs]
    return [
        verdict("verified", k < 0, action, ("proven_wrong", "proven_right" if k else "not_verified"), k) for k in known
    ]
