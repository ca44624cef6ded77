"""Schedules of the token limit of a turn, one file each."""

from __future__ import annotations

from typing import Protocol


class TurnBudgetPiece(Protocol):
    """The token limit of a turn over the course of training.

    Args:
        step: the step, from 0
        steps: the total number of steps

    Returns:
        the most tokens of a turn of the model at this step, at least 1

    Check gives:
        steps: how many steps there are
        at: the steps at which the limit is computed

    Check expects:
        values: the tokens at each of them
    """

    def __call__(self, step: int, steps: int) -> int: ...
