"""Losses in addition to the policy loss, one file each."""

from __future__ import annotations

from typing import Protocol

from training.types import Batch, Terms, TokenStats


class RegulariserPiece(Protocol):
    """A loss in addition to the policy loss.

    Args:
        stats: log-probs and entropies [T] of the current policy, with gradient
        batch: the rows with their columns and totals

    Returns:
        values [T] to be summed, exactly 0 where a token is not trainable, its coefficient applied, and the name of
            the total that divides the sum

    Check gives:
        rows: rows of tokens, in the form of `batch` in tasks/lab/toy.py: log-probs, or whole distributions with the
            sampled tokens

    Check expects:
        loss: the sum of the values divided by their declared denominator, as the learner divides
        gradient: of the loss, per row; with respect to the logits if a row gives whole distributions
        descent: the negative of the gradient
    """

    def __call__(self, stats: TokenStats, batch: Batch) -> Terms: ...
