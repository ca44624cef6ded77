"""Double-sided masking of tokens on which sampler and learner disagree.

Ling team 2025, "Small Leak Can Sink a Great Ship: Boost RL Training on MoE with IcePop!" (blog post).

    r_t = exp(old_t - sampling_logp_t),      w_t = r_t  where low <= r_t <= high,  else 0

old are the learner's log-probs before the update, sampling_logp those that the sampler recorded. Shapes: [T] in,
[T] out, detached; 1 where a token is not trainable or a log-prob is not finite. Truncation (`truncated`) keeps a
bounded gradient on a token on which the two engines disagree; here such a token has none, in both directions. Leaves
out masking whole sequences.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch

NEEDS = {"old"}
EXCLUDES = {
    "ratio/sequence": "masked leaves out single tokens by their own old log-probs, and a sequence ratio counts those tokens all the "
    "same; use ratio token, or the correction truncated"
}


def masked(old: Tensor, sampling_logp: Tensor, batch: Batch, *, low: float = 0.5, high: float = 5.0) -> Tensor:
    if not 0 < low <= 1 <= high:
        raise ValueError(
            f"masked: the band is [{low}, {high}]; it must hold 1, where sampler and learner agree, and low must be above 0"
        )
    d = live(old - sampling_logp, batch).detach()
    inside = (d >= math.log(low)) & (d <= math.log(high))
    return torch.where(inside, d.clamp(-LIMIT, LIMIT).exp(), 0.0)
