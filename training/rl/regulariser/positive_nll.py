"""Next-token loss of the right answers among the policy's own.

Yue et al. 2025, "VAPO: Efficient and Reliable Reinforcement Learning for Advanced Reasoning Tasks" (arXiv 2504.05118).

    value_t = -coef logp_t  on rollouts whose score exceeds `threshold`, else 0;         mean over their tokens

Shapes: stats.logp [T] and columns["reward"] [R] in, values [T] out. A right answer on a hard problem is rare, so it is
imitated as well as reinforced. The denominator counts the tokens of right answers in the whole step (`prepare`).
"""

from __future__ import annotations

import torch

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats


def prepare(batch: Batch, *, threshold: float = 0.5, **_: object) -> None:
    """Adds totals["right_tokens"], at least 1."""
    right = batch.per_token(batch.columns["reward"]) > threshold
    batch.totals["right_tokens"] = max(1.0, float((right & batch.trainable).sum()))


def positive_nll(stats: TokenStats, batch: Batch, *, coef: float = 0.1, threshold: float = 0.5) -> Terms:
    right = batch.per_token(batch.columns["reward"]) > threshold
    values = torch.where(right, -coef * live(stats.logp, batch), 0.0)
    return Terms(values=values, denominator="right_tokens")
