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
        sampling: seconds that each step is sampled
        learning: seconds that each step is learned

    Check expects:
        seconds: of the whole run
        hidden: share of the sampling that learning hides
        saved: share of the seconds of the plain loop
    """

    def __call__(self) -> Mode: ...
