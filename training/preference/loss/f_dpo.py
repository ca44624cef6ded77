"""DPO with another divergence than the reverse KL between policy and reference.

Wang et al. 2023, "Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints" (arXiv 2309.16240).

    t = exp(chosen - ref_chosen) of an answer,   score = f'(t) up to a constant
    reverse_kl  log t         forward_kl  1 - 1/t         js  log(2 t / (1 + t))         alpha  (t^(a - 1) - 1) / (a - 1)
    value = -log sigmoid( beta (score of chosen - score of rejected) )

Shapes: sums of log-probs [P] in, loss per pair [P] out. Divergences with f'(0) = -inf keep the policy's support; alpha runs from the
forward (0) to the reverse KL (1). Exponents are kept below 80, so that they stay finite.
TRL: DPOTrainer `sigmoid` with `f_divergence_type`.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def f_dpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    divergence: Literal["reverse_kl", "forward_kl", "js", "alpha"] = "js",
    alpha: float = 0.5,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    c, r = (_score(x, divergence, alpha) for x in (better, worse))
    return torch.where(ok, -logsigmoid(beta * (c - r)), 0.0)


def _score(log_t: Tensor, divergence: str, alpha: float) -> Tensor:
    """f'(t) of log t [P]. Raises ValueError for an unknown divergence."""
    if divergence == "reverse_kl" or (divergence == "alpha" and abs(alpha - 1) < 1e-6):
        return log_t
    if divergence == "forward_kl":
        return 1 - (-log_t).clamp_max(80.0).exp()
    if divergence == "js":
        return math.log(2) + logsigmoid(log_t)
    if divergence == "alpha":
        return (((alpha - 1) * log_t).clamp_max(80.0).exp() - 1) / (alpha - 1)
    raise ValueError(f"divergence is {divergence!r}; choose 'reverse_kl', 'forward_kl', 'js' or 'alpha'")
