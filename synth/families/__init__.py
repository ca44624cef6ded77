"""Families of verifiable problems, one file each: generator, ladder of levels, scorer, and a certificate by two
independent routes."""

from __future__ import annotations

from typing import Protocol

from synth.types import Problem, Quarantined, Split


class FamilyPiece(Protocol):
    """Generates a verifiable problem.

    Args:
        seed: that of the run; all randomness is hashed from it, the split and the index
        split: train, valid or test
        index: which problem of this split

    Returns:
        a problem on whose answer two routes agree, or the reason why there is none

    Check gives:
        n: items of the split train
        words: words to count in the worked answers (none)

    Check expects:
        right: worked answers that are scored 1
        proved: items that a second route proves
        families: their families
        words: {word: its count in each worked answer}
    """

    def __call__(self, seed: int, split: Split, index: int) -> Problem | Quarantined: ...
