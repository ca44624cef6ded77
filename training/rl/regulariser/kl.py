"""A penalty that keeps the policy near a reference.

Schulman 2020, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html); k3 in the loss: Shao et al. 2024,
"DeepSeekMath" (arXiv 2402.03300).

    d = logp_t - reference_t      k1 = d      k2 = d^2 / 2      k3 = exp(-d) - 1 + d            value_t = coef * k

Shapes: stats.logp and columns["reference"] [T] in, values [T] out. As estimates of KL(policy || reference) on policy
samples k1 and k3 are unbiased, and k3 is never negative; as losses only k2's gradient is that of the KL, k1's is 0 on
average and k3's is that of the reverse KL near the reference. Leaves out the penalty folded into the reward, and
importance weights for off-policy samples.
"""

from __future__ import annotations

from typing import Literal

import torch

from training.learner.reduction import LIMIT, Aggregate, live, weigh
from training.types import Batch, Terms, TokenStats

NEEDS = {"reference"}
SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def kl(
    stats: TokenStats,
    batch: Batch,
    *,
    coef: float = 0.04,
    estimator: Literal["k1", "k2", "k3"] = "k3",
    aggregate: Aggregate = "tokens",
    max_length: int = 128,
) -> Terms:
    d = live(stats.logp - batch.columns["reference"], batch).clamp(-LIMIT, LIMIT)
    if estimator == "k1":
        k = d
    elif estimator == "k2":
        k = d.square() / 2
    elif estimator == "k3":
        k = torch.exp(-d) - 1 + d
    else:
        raise ValueError(f"estimator is {estimator!r}; choose 'k1', 'k2' or 'k3'")
    values, denominator = weigh(coef * k, batch, aggregate, max_length)
    return Terms(
        values=values, denominator=denominator, metrics={"kl_reference": (k.detach().sum(), batch.trainable.sum())}
    )
