"""Humanline clipping: tokens that differ too much from the reference count only up to a bound.

Liu et al. 2025, "Humanline: Online Alignment as Perceptual Loss" (arXiv 2509.24207).

    log r_t = clip( logp_t - old_t, log_epsilon_p, log_epsilon_r )

Shapes: [T] in, [T] out, exactly 0 where not trainable or not finite. A token beyond a bound has no gradient; an
answer's log-ratio is the sum of the clipped values. It is the limit of rejection sampling with perceived probabilities
(prospect theory). Made for any loss above it: in the stage `prefer` old is the reference, in `rl` the policy that
sampled. Infinite bounds are `token`. The other half of the method, renewing the reference every few steps, is `every`
of a round. The published bounds were not found; these are our reading.
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import live
from training.types import Batch


def humanline(
    logp: Tensor, old: Tensor, batch: Batch, *, log_epsilon_p: float = -1.5, log_epsilon_r: float = 1.5
) -> Tensor:
    return live(logp - old, batch).clamp(log_epsilon_p, log_epsilon_r)
