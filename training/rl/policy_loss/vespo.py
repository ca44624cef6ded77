"""Policy gradient weighted by a smooth function of the whole sequence's importance ratio, which decays on both sides of
1.

"VESPO: Variational Sequence-Level Soft Policy Optimization for Stable Off-Policy LLM Training", 2026 (arXiv
2602.10693), as TRL has it.

    value_t = -sg(phi(w_i)) A_t logp_t,      phi(w) = exp(lam + k log w - lam w),      w_i = exp(sum over trainable t of
    row i of log r_t)

Shapes: log_ratio and advantage [T] in, values [T] out. phi(1) = 1, so on policy it is the policy gradient; w is not
divided by the length. k and lam are `k_pos`, `lam_pos` where A_t is 0 or more, else `k_neg`, `lam_neg`. log w is
clamped to [log 1e-8, 20], as published. A token without finite log-probs has ratio 1 and no gradient. TRL: GRPOTrainer
`vespo`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, Aggregate, live, weigh
from training.types import Batch, Metrics, Terms, TokenStats

EXCLUDES = {"ratio/sequence": "vespo makes the sequence's ratio itself, of the ratios of its tokens; use ratio token"}


def vespo(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    k_pos: float = 2.0,
    lam_pos: float = 3.0,
    k_neg: float = 3.0,
    lam_neg: float = 2.0,
    aggregate: Aggregate = "tokens",
    max_length: int = 128,
) -> Terms:
    if min(lam_pos, lam_neg) <= 0:
        raise ValueError(
            f"vespo: lam_pos and lam_neg are {lam_pos} and {lam_neg}; above 0 they bound the weight of a large ratio"
        )
    advantages = live(advantages, batch)
    with torch.no_grad():
        log_w = batch.row_sum(live(log_ratio, batch).clamp(-LIMIT, LIMIT)).clamp(math.log(1e-8), LIMIT)
        log_w = batch.per_token(log_w)
        k, lam = torch.where(advantages >= 0, k_pos, k_neg), torch.where(advantages >= 0, lam_pos, lam_neg)
        weight = (lam + k * log_w - lam * log_w.exp()).exp()
        n = batch.trainable.sum()
        metrics: Metrics = {"weight": (torch.where(batch.trainable, weight, 0.0).sum(), n)}
    values, denominator = weigh(-weight * advantages * live(stats.logp, batch), batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator, metrics=metrics)
