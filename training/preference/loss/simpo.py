"""Simple preference optimisation: mean log-probs, a target margin, no reference.

Meng et al. 2024, "SimPO: Simple Preference Optimization with a Reference-Free Reward" (arXiv 2405.14734).

    value = -log sigmoid( beta * (chosen / n_chosen - rejected / n_rejected) - gamma )

Shapes: sums of log-probs and token counts [P] in, loss per pair [P] out. The reference arguments are not read.
Leaves out the SFT term that some implementations add.
TRL: CPOTrainer `simpo`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite


def simpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 2.0,
    gamma: float = 1.0,
) -> Tensor:
    d, ok = finite(chosen / n_chosen.clamp_min(1) - rejected / n_rejected.clamp_min(1))
    return torch.where(ok, -logsigmoid(beta * d - gamma), 0.0)
