"""The clipped policy loss of geometric means: one ratio per sequence, made of ratios that are clipped token by token.

Zhao et al. 2025, "Geometric-Mean Policy Optimization" (GMPO, arXiv 2507.20673).

    value_i = -A_i exp( 1/|o_i| sum_t c_t ),     c_t = log r_t clipped to at most +width where A_i > 0, at least -width
    where A_i < 0

Shapes: log_ratio and advantage [T] in, values [T] out (a sequence's value shared evenly by its tokens). One token with
an extreme ratio hardly changes a geometric mean, so the range may be wide: e^-0.4 to e^0.4. A clipped token has no
gradient; the others keep theirs. The advantage of a row is that of its first trainable token: one per answer is
assumed. A token without finite log-probs has ratio 1.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch, Metrics, Terms, TokenStats

EXCLUDES = {"ratio/sequence": "geometric makes the sequence's ratio itself, of clipped token ratios; use ratio token"}


def geometric(log_ratio: Tensor, advantages: Tensor, stats: TokenStats, batch: Batch, *, width: float = 0.4) -> Terms:
    if width <= 0:
        raise ValueError(f"geometric: width is {width}; it bounds the log-ratio of a token and must be above 0")
    log_ratio, advantages = live(log_ratio, batch).clamp(-LIMIT, LIMIT), live(advantages, batch)
    clipped = torch.where(advantages > 0, log_ratio.clamp(max=width), log_ratio.clamp(min=-width))
    mean = batch.per_token(batch.row_sum(clipped) / batch.row_tokens)
    values = live(-advantages * mean.clamp(-LIMIT, LIMIT).exp(), batch) / batch.per_token(batch.row_tokens)
    n = batch.trainable.sum()
    metrics: Metrics = {"clip_fraction": (((clipped != log_ratio) & batch.trainable).sum(), n)}
    return Terms(values=values, denominator="sequences", metrics=metrics)
