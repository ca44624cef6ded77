"""Soft adaptive policy optimisation: a sigmoid gate in place of the clip.

Gao et al. 2025, "Soft Adaptive Policy Optimization" (arXiv 2511.20347).

    value_t = -4 / tau * sigmoid(tau (r_t - 1)) A_t,      tau = tau_pos where A_t > 0, else tau_neg

Shapes: log_ratio and advantage [T] in, values [T] out. On policy its gradient is the policy gradient's; away from ratio
1 it decays smoothly on both sides, faster for negative advantages, whose gradient spreads over the whole vocabulary. A
token without finite log-probs has none.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, Aggregate, live, weigh
from training.types import Batch, Terms, TokenStats

SCOPE = "token"  # the gradient of a token depends on its own statistics alone


def sapo(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
    aggregate: Aggregate = "sequences",
    max_length: int = 128,
) -> Terms:
    log_ratio, advantages = live(log_ratio, batch).clamp(-LIMIT, LIMIT), live(advantages, batch)
    tau = torch.where(advantages > 0, tau_pos, tau_neg)
    gate = torch.sigmoid(tau * (log_ratio.exp() - 1)) * 4 / tau
    values, denominator = weigh(-gate * advantages, batch, aggregate, max_length)
    return Terms(values=values, denominator=denominator)
