"""Solvers of self-play, one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from synth.selfplay.loop import Solver


class SolverPiece(Protocol):
    """Makes a solver for self-play.

    Returns:
        answers problems: problems in, texts out, and what it remembers
    """

    def __call__(self) -> Solver: ...
