"""Policy gradient weighted by a clipped importance ratio that is itself a constant.

MiniMax 2025, "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention" (CISPO, arXiv 2506.13585);
with an upper bound only, Wu et al. 2025, "LlamaRL" (AIPO, arXiv 2505.24034).

    value_t = -sg(min(max(r_t, low), high)) A_t logp_t

Shapes: log_ratio and advantage [T] in, values [T] out. The ratio is bounded, not the gradient: a token outside the
bounds still has a gradient, while `clip` drops it. `low` 0 leaves the lower side free. A token without finite log-probs
has no gradient.
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import LIMIT, Aggregate, live, weigh
from training.types import Batch, Terms, TokenStats

SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def cispo(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    low: float = 0.0,
    high: float = 5.0,
    aggregate: Aggregate = "tokens",
    max_length: int = 128,
) -> Terms:
    if not 0 <= low <= 1 <= high:
        raise ValueError(f"cispo: the bounds of the ratio are [{low}, {high}]; they must hold 1, the ratio on policy")
    weight = live(log_ratio, batch).detach().clamp(-LIMIT, LIMIT).exp().clamp(low, high)
    values, denominator = weigh(
        -weight * live(advantages, batch) * live(stats.logp, batch), batch, aggregate, max_length
    )
    return Terms(values=values, denominator=denominator)
