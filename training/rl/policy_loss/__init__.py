"""Policy losses, one file each."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from training.types import Batch, Terms, TokenStats


class PolicyLossPiece(Protocol):
    """The loss of the policy (lower is better).

    Args:
        log_ratio: [T] log-ratio of the policy to the one before the update, with gradient
        advantages: [T] advantage of each token
        stats: log-probs and entropies [T] of the current policy, with gradient
        batch: the rows with their columns and totals

    Returns:
        values [T] to be summed, exactly 0 where a token is not trainable, and the name of the total that divides
            the sum

    Check gives:
        rows: rows of tokens, in the form of `batch` in tasks/lab/toy.py: log-probs, or whole distributions with the
            sampled tokens; the ratio is that of the recipe

    Check expects:
        loss: the sum of the values divided by their declared denominator, as the learner divides
        gradient: of the loss, per row; with respect to the logits if a row gives whole distributions
        descent: the negative of the gradient

    ADVANTAGE_ONLY = False in the module says that the loss has a gradient even if the advantage is 0.
    """

    def __call__(self, log_ratio: Tensor, advantages: Tensor, stats: TokenStats, batch: Batch) -> Terms: ...
