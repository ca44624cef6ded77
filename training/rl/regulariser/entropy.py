"""A bonus for entropy.

Williams and Peng 1991, "Function Optimization using Connectionist Reinforcement Learning Algorithms"; Mnih et al. 2016,
"Asynchronous Methods for Deep Reinforcement Learning" (arXiv 1602.01783).

    value_t = -coef * H_t,     H_t = -sum_v p_t(v) log p_t(v) in nats, exact over the vocabulary

Shapes: stats.entropy [T] in, values [T] out. Its gradient goes through the distribution at each visited state; it
ignores that earlier tokens change which states are visited.
"""

from __future__ import annotations

from training.learner.reduction import Aggregate, live, weigh
from training.types import Batch, Terms, TokenStats

NEEDS = {"entropy"}
SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def entropy(
    stats: TokenStats, batch: Batch, *, coef: float = 0.001, aggregate: Aggregate = "tokens", max_length: int = 128
) -> Terms:
    if stats.entropy is None:
        raise ValueError(
            "the entropy bonus needs TokenStats.entropy, and the pass that made them computed none: list 'entropy' in NEEDS"
        )
    values, denominator = weigh(-coef * live(stats.entropy, batch), batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator)
