"""Truncated importance sampling between sampler and learner.

Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (blog post,
fengyao.notion.site); Ionides 2008, "Truncated Importance Sampling".

    w_t = min(exp(old_t - sampling_logp_t), cap)

old are the learner's log-probs before the update, sampling_logp those that the sampler recorded. Shapes: [T] in,
[T] out, detached; 1 where a token is not trainable or a log-prob is not finite. The truncation bounds the variance at
the cost of a bias. Without an old-policy pass old is sampling_logp and every weight is 1. Leaves out sequence-level
weights.
"""

from __future__ import annotations

import math

from torch import Tensor

from training.learner.reduction import live
from training.types import Batch

NEEDS = {"old"}


def truncated(old: Tensor, sampling_logp: Tensor, batch: Batch, *, cap: float = 2.0) -> Tensor:
    if cap <= 0:
        raise ValueError(f"cap is {cap}: the largest weight must be positive")
    return live(old - sampling_logp, batch).detach().clamp(max=math.log(cap)).exp()
