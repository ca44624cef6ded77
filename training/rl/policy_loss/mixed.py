"""The clipped policy loss for the policy's own answers, and another weight for off-policy answers.

RL-PLUS, Dong et al. 2025 (arXiv 2508.00222); Critique-GRPO, Zhang et al. 2025, "Critique-GRPO: Advancing LLM Reasoning
with Natural Language and Numerical Feedback" (arXiv 2506.03106).

    own tokens         clip's value
    off_policy, plus     -2 p / (old + w) A (1 - sg p)^gamma,   w = (old + 1) / 2: the density of the answer's author
                         lies between old and 1
    off_policy, shaped   -p / (p + gamma) A: the gradient, gamma p / (p + gamma)^2 A times that of log p, is largest at
                         p = gamma

Shapes: log_ratio, advantage, stats.logp [T] and columns["off_policy"] [R] in, values [T] out, mean over all tokens. p is the
policy's probability of the token, old that of the policy at the step's start. Neither is clipped: unlikely right tokens
are what should be learned.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.rl.policy_loss.clip import clip
from training.types import Batch, Terms, TokenStats

EXCLUDES = {"ratio/sequence": "mixed weighs single tokens of off_policy answers; use ratio token"}


def mixed(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    off: Literal["plus", "shaped"] = "plus",
    gamma: float = 0.5,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Terms:
    own = clip(log_ratio, advantages, stats, batch, clip_low=clip_low, clip_high=clip_high)
    foreign = batch.per_token(batch.columns["off_policy"]) > 0.5
    p = live(stats.logp, batch).clamp(-4 * LIMIT, 0.0).exp()
    a = live(advantages, batch)
    if off == "shaped":
        values = -p / (p + gamma) * a
    else:
        old = live(stats.logp - log_ratio, batch).detach().clamp(-4 * LIMIT, 0.0).exp()
        values = -2 * p / (old + (old + 1) / 2) * a * (1 - p.detach()).pow(gamma)
    own.values = torch.where(foreign, live(values, batch), own.values)
    own.metrics = {**own.metrics, "off_policy": ((foreign & batch.trainable).sum(), batch.trainable.sum())}
    return own
