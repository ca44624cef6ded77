"""Log-ratios of the policy to the one before the update, one file each."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from training.types import Batch


class RatioPiece(Protocol):
    """The log-ratio of the policy to the one before the update.

    Args:
        logp: [T] log-probs of the current policy, in nats, with gradient
        old: [T] log-probs of the policy before the update
        batch: the rows

    Returns:
        [T] log-ratio in nats: finite, 0 where a token is not trainable and where `logp` equals `old`

    Check gives:
        rows: rows of tokens, in the form of `batch` in tasks/lab/toy.py: log-probs, or whole distributions with the
            sampled tokens

    Check expects:
        log_ratio: per row, per token
    """

    def __call__(self, logp: Tensor, old: Tensor, batch: Batch) -> Tensor: ...
