"""Cross-entropy of the critic's values as probabilities of success.

Liu et al. 2024, "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy
Optimization" (DAPO, arXiv 2412.18279); Setlur et al. 2024, "Rewarding Progress: Scaling Automated Process Verifiers for
LLM Reasoning" (arXiv 2410.08146).

    value_t = -R_t log V_t - (1 - R_t) log(1 - V_t),        V and R clipped to [eps, 1 - eps] and [0, 1]

Shapes: value and columns["returns"] [T] in, values [T] out, exactly 0 where not trainable or not finite. A value
outside this interval counts as its nearest end; its only gradient is that of a penalty (V - end)^2 / 2, which pulls it
back. Assumes rewards in [0, 1].
"""

from __future__ import annotations

from torch import Tensor

from training.learner.reduction import Aggregate, live, weigh
from training.types import Batch, Terms


def cross_entropy(
    value: Tensor, batch: Batch, *, eps: float = 0.01, aggregate: Aggregate = "tokens", max_length: int = 128
) -> Terms:
    if not 0 < eps < 0.5:
        raise ValueError(
            f"cross_entropy: eps is {eps}; it keeps values away from 0 and 1 and must be between 0 and 1/2"
        )
    value, returns = live(value, batch), live(batch.columns["returns"], batch).clamp(0, 1)
    p = value.clamp(eps, 1 - eps)
    loss = -returns * p.log() - (1 - returns) * (1 - p).log() + (value - p.detach()).square() / 2
    values, denominator = weigh(live(loss, batch), batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator)
