"""Self-play preference optimisation with hard labels: regression of the log-ratios.

Wu et al. 2024, "Self-Play Preference Optimization for Language Model Alignment" (arXiv 2405.00675).

    value = (chosen - ref_chosen - 1 / (2 beta))^2 + (rejected - ref_rejected + 1 / (2 beta))^2

Shapes: sums of log-probs [P] in, loss per pair [P] out. In the paper's terms 1 / beta is eta, and the targets are eta
(P(y wins) - 1/2) with P = 1 and 0. Each answer has its own target, so the log-prob of the chosen answer must rise.
Leaves out the estimated win rates, and the self-play that makes the last iterate the next reference.
TRL: DPOTrainer `sppo_hard`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def sppo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.001,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    return torch.where(ok, (better - 0.5 / beta).square() + (worse + 0.5 / beta).square(), 0.0)
