"""Importance ratio of each token.

Schulman et al. 2017, "Proximal Policy Optimization Algorithms" (arXiv 1707.06347).

    log r_t = logp_t - old_t

Shapes: [T] in, [T] out, exactly 0 at tokens that are not trainable or whose log-probs are not finite.
Leaves out the correction of earlier tokens of the same sequence (see `sequence`).
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import live
from training.types import Batch

SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def token(logp: Tensor, old: Tensor, batch: Batch) -> Tensor:
    return live(logp - old, batch)
