"""Multiplayer Nash preference optimisation: a squared margin against the reference and earlier policies.

"Multiplayer Nash Preference Optimization" 2025 (arXiv 2509.23102); with rho = 0 and one predecessor it is INPO, Zhang et al. 2024,
"Iterative Nash Policy Optimization" (arXiv 2407.00617).

    h = chosen - rejected,   h_ref = ref_chosen - ref_rejected,   history = sum_j lambda_j h_j of earlier policies, sum_j lambda_j = 1
    value = ( h - rho h_ref - (1 - rho) history - 1 / (2 eta) )^2

Shapes: sums of log-probs [P] in, loss per pair [P] out; history [P], without gradient, comes from the pass "history"
(uniform weights; the reference as long as there is no predecessor). rho = 1 is IPO with beta = eta. The target 1 / (2
eta) is the step of multiplicative weights. Leaves out opponents that are other models.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import finite

NEEDS = {"reference", "history"}


def mnpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    history: Tensor,
    rho: float = 0.333,
    eta: float = 0.0075,
) -> Tensor:
    d, ok = finite((chosen - rejected) - rho * (ref_chosen - ref_rejected) - (1 - rho) * history)
    return torch.where(ok, (d - 1 / (2 * eta)).square(), 0.0)
