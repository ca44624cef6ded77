"""Schedules of the tokens that a turn may have, one file each."""

from __future__ import annotations

from typing import Protocol


class TurnBudgetPiece(Protocol):
    """How many tokens a turn may have, as training goes on.

    Args:
        step: the step, from 0
        steps: how many there are

    Returns:
        tokens that a turn of the model may have at this step, at least 1

    Check gives:
        steps: how many steps there are
        at: the steps that are asked about

    Check expects:
        values: the tokens at each of them
    """

    def __call__(self, step: int, steps: int) -> int: ...
