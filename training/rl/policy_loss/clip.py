"""Clipped policy loss, with separate ranges on both sides and an optional second clip.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347); clip-higher and the token mean: Yu
et al. 2025, "DAPO" (arXiv 2503.14476); dual clip: Ye et al. 2020, "Mastering Complex Control in MOBA Games with Deep
Reinforcement Learning" (arXiv 1912.09729).

    value_t = -min(r_t A_t, clip(r_t, 1 - clip_low, 1 + clip_high) A_t),   where A_t < 0 at most -dual_clip * A_t

Shapes: log_ratio and advantage [T] in, values [T] out. `dual_clip` is 0 (off) or above 1. `aggregate`: "tokens" is
DAPO, "sequences" GRPO, "constant" with `max_length` Dr. GRPO (see training/learner/reduction.py). A token without
finite log-probs has ratio 1 and no gradient. Leaves out the value function and its loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, Aggregate, live, weigh
from training.types import Batch, Metrics, Terms, TokenStats

SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def clip(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float = 0.0,
    aggregate: Aggregate = "tokens",
    max_length: int = 128,
) -> Terms:
    if dual_clip and dual_clip <= 1:
        raise ValueError(f"dual_clip is {dual_clip}: it must be above 1, or 0 to leave it out")
    log_ratio, advantages = live(log_ratio, batch).clamp(-LIMIT, LIMIT), live(advantages, batch)
    ratio = log_ratio.exp()
    plain, clipped = -ratio * advantages, -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    values = torch.maximum(plain, clipped)
    if dual_clip:
        values = torch.where(advantages < 0, torch.minimum(values, -dual_clip * advantages), values)
    with torch.no_grad():
        n = batch.trainable.sum()
        metrics: Metrics = {
            "clip_fraction": (((plain < clipped) & batch.trainable).sum(), n),
            "ratio": (torch.where(batch.trainable, ratio, 0.0).sum(), n),
            "kl_old": ((ratio - 1 - log_ratio).sum(), n),
        }
    values, denominator = weigh(values, batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator, metrics=metrics)
