"""Losses of a critic, one file each."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from training.types import Batch, Terms


class ValueLossPiece(Protocol):
    """The loss of a critic that learns beside the policy.

    Args:
        value: [T] what the critic says now, with gradient
        batch: the rows; columns `returns` [T] (what it should have said) and `value` [T] (what it said before the
            step)

    Returns:
        values [T] to be summed, and the name of the total that divides the sum

    Check gives:
        rows: rows of tokens, as tasks/lab/toy.py `batch` takes them: log-probs, or whole distributions with the
            sampled tokens; `value` is what the critic says now, `before` what it said before the step (the same)

    Check expects:
        loss: the sum of the values divided by their declared denominator, as the learner divides
        gradient: of the loss, per row; that of the logits where a row gives whole distributions
        descent: the negative of the gradient
    """

    def __call__(self, value: Tensor, batch: Batch) -> Terms: ...
