"""Losses of a critic, one file each."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from training.types import Batch, Terms


class ValueLossPiece(Protocol):
    """The loss of a critic that is trained alongside the policy.

    Args:
        value: [T] the critic's current values, with gradient
        batch: the rows; columns `returns` [T] (the targets) and `value` [T] (the critic's values before the step)

    Returns:
        values [T] to be summed, and the name of the total that divides the sum

    Check gives:
        rows: rows of tokens, in the form of `batch` in tasks/lab/toy.py: log-probs, or whole distributions with the
            sampled tokens; `value` is the critic's current value, `before` its value before the step (default: the
                same)

    Check expects:
        loss: the sum of the values divided by their declared denominator, as the learner divides
        gradient: of the loss, per row; with respect to the logits if a row gives whole distributions
        descent: the negative of the gradient
    """

    def __call__(self, value: Tensor, batch: Batch) -> Terms: ...
