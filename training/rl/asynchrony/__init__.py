"""How far sampling runs ahead of learning: the knob `asynchrony` of `rl`, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from training.rl.ahead import Mode


class AsynchronyPiece(Protocol):
    """How far sampling runs ahead of learning.

    Returns:
        how many updates the weights may be behind, and whether a turn takes newer ones

    Check gives:
        sampling: seconds of sampling for each step
        learning: seconds of learning for each step

    Check expects:
        seconds: of the whole run
        hidden: share of the sampling time that overlaps with learning
        saved: share of the time of the plain loop that is saved
    """

    def __call__(self) -> Mode: ...
