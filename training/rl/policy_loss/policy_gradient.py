"""The plain policy gradient, without a ratio.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning".

    value_t = -A_t logp_t

Shapes: advantage and stats.logp [T] in, values [T] out. On-policy (one update per batch of rollouts) its gradient is
that of `clip`. "constant" with max_length 1 sums each sequence, which is REINFORCE as written: the log-prob of a
sequence is the sum of its tokens'. Assumes on-policy data: it uses no ratio, so it corrects for nothing.
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import Aggregate, live, weigh
from training.types import Batch, Terms, TokenStats

EXCLUDES = {
    "ratio/sequence": "policy_gradient reads no ratio, so a sequence ratio would change nothing; use the policy loss clip"
}
SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def policy_gradient(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    aggregate: Aggregate = "constant",
    max_length: int = 1,
) -> Terms:
    values, denominator = weigh(-live(advantages, batch) * live(stats.logp, batch), batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator)
