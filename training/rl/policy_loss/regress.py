"""Regression of a log-ratio onto the advantage, per token or for the rest of the answer.

Liu et al. 2024, "Improving Multi-Step Reasoning Abilities of Large Language Models with Direct Advantage Policy
Optimization" (arXiv 2412.18279); Wang et al. 2024, "Offline Reinforcement Learning for LLM Multi-Step Reasoning" (OREO,
arXiv 2412.16145).

    d_t = log p_t - log reference_t
    token      value_t = 1/2 (beta d_t - A_t)^2                                          Direct Advantage
    rest       value_t = (beta d_t + sg(beta sum_{i > t} d_i) - A_t)^2,  A_t = R_t - V_t      OREO's policy loss

Shapes: advantage and columns["reference"] [T] in, values [T] out, mean over tokens. Its minimum is the policy of
KL-regularised reward, beta the price of KL. It uses no ratio to the sampling policy, so it may be used off-policy.
Leaves out OREO's regulariser (see `kl`).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

NEEDS = {"reference"}
EXCLUDES = {"ratio/sequence": "regress compares with the reference and reads no ratio; use ratio token"}
ADVANTAGE_ONLY = False  # it has a gradient for zero advantage too


def regress(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    beta: float = 0.02,
    horizon: Literal["token", "rest"] = "token",
) -> Terms:
    d = live(stats.logp - batch.columns["reference"], batch).clamp(-LIMIT, LIMIT)
    advantages = live(advantages, batch)
    if horizon == "token":
        return Terms(values=live((beta * d - advantages).square(), batch) / 2, denominator="tokens")
    fixed = d.detach()
    seen = torch.cumsum(fixed.double(), 0)
    total = torch.cumsum(batch.row_sum(fixed.double()), 0)
    later = (batch.per_token(total) - seen).to(d.dtype)
    return Terms(values=live((beta * d + beta * later - advantages).square(), batch), denominator="tokens")
