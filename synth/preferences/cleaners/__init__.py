"""Cleaners of preference pairs, one file each, function named as its file.

A cleaner only judges: it changes and removes nothing, and reads only the pair itself. `NEEDS` names the columns that
it reads from `pair.columns`; the stage `clean` computes them. `ALONE = True` says that each pair is judged by itself,
whatever others said of it: such a cleaner gets pairs a block at a time, the others get all, which are read from disk each time
that they are gone through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from synth.types import Decision, PreferencePair


class CleanerPiece(Protocol):
    """Judges preference pairs, without changing or removing any.

    Args:
        pairs: all pairs, with the columns that the module names as NEEDS

    Returns:
        one decision per pair, in order: keep, weight, ask, remove or flip, with the reason and the cleaner's own
            score

    Check gives:
        pairs: per pair the fields that matter: columns, prompt, chosen, rejected, margin, source, split, decisions

    Check expects:
        actions: per pair
        reasons: per pair, as codes
        scores: per pair
    """

    def __call__(self, pairs: Sequence[PreferencePair]) -> Sequence[Decision]: ...
