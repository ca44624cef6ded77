"""Importance-sampling corrections where sampler and learner disagree, one file each."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from training.types import Batch


class CorrectionPiece(Protocol):
    """The importance-sampling weight where sampler and learner disagree.

    Args:
        old: [T] log-probs of the policy before the update, by the learner
        sampling_logp: [T] log-probs of the same tokens, by the sampler
        batch: the rows

    Returns:
        [T] weight, detached and finite: the learner multiplies each token's loss with it

    Check gives:
        rows: rows of tokens, in the form of `batch` in tasks/lab/toy.py: log-probs, or whole distributions with the
            sampled tokens

    Check expects:
        weight: per row, per token
    """

    def __call__(self, old: Tensor, sampling_logp: Tensor, batch: Batch) -> Tensor: ...
