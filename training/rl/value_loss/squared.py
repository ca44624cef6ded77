"""Squared error of the critic's values, with an optional clip of their change.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347); the clip is that of its published
code.

    value_t = 1/2 (V_t - R_t)^2,      clip > 0:  1/2 max( (V_t - R_t)^2, (V'_t - R_t)^2 ),  V' = V within clip of the V
    before the step

Shapes: value, columns["returns"] and columns["value"] [T] in, values [T] out, exactly 0 where not trainable or not
finite. The clip limits the change of a value by a single batch; with one update per batch it has no effect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import Aggregate, live, weigh
from training.types import Batch, Terms


def squared(
    value: Tensor, batch: Batch, *, clip: float = 0.2, aggregate: Aggregate = "tokens", max_length: int = 128
) -> Terms:
    if clip < 0:
        raise ValueError(f"the clip of a critic's values is {clip}: it must be above 0, or 0 to leave it out")
    returns, before = batch.columns["returns"], batch.columns["value"]
    loss = (value - returns).square()
    if clip:
        loss = torch.maximum(loss, (before + (value - before).clamp(-clip, clip) - returns).square())
    values, denominator = weigh(live(loss, batch) / 2, batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator)
