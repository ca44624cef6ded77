"""Pairwise proximal policy optimisation: the policy gradient of a difference of rewards, clipped.

Wu et al. 2023, "Pairwise Proximal Policy Optimization: Harnessing Relative Feedback for LLM Alignment" (arXiv
2310.00212).

    w = exp(log-prob now - log-prob when sampled) of each answer;   g = r(chosen) - r(rejected)
    joint     value = -1/2 min(rho g, clip(rho, 1 - e, 1 + e) g),        rho = w_chosen / w_rejected
    separate  value = -1/2 [ min(w_chosen g, clip(w_chosen) g) + min(-w_rejected g, -clip(w_rejected) g) ]

Shapes: sums of log-probs [P] in, loss per pair [P] out; margin [P] is g. The reference is the policy that sampled: a
round with `every: 1`. Adding anything to all rewards of a prompt changes nothing. On-policy both versions give the
gradient of RLOO with two samples. Log-ratios are clamped to 20 in absolute value. Leaves out the KL to the first
policy, which the paper subtracts from the rewards.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def p3o(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    margin: Tensor,
    clip: float = 0.2,
    version: Literal["joint", "separate"] = "joint",
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    if version == "joint":
        values = _pessimistic(better - worse, margin, clip)
    elif version == "separate":
        values = _pessimistic(better, margin, clip) + _pessimistic(worse, -margin, clip)
    else:
        raise ValueError(f"version is {version!r}; choose 'joint' or 'separate'")
    return torch.where(ok, -0.5 * values, 0.0)


def _pessimistic(log_ratio: Tensor, gain: Tensor, clip: float) -> Tensor:
    ratio = log_ratio.clamp(-20.0, 20.0).exp()
    return torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain)
