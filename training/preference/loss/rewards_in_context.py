"""Reward-conditioned supervised learning: the prompt of each answer states its scores.

Yang et al. 2024, "Rewards-in-Context: Multi-objective Alignment of Foundation Models with Dynamic Preference
Adjustment" (arXiv 2402.10207).

    value = -1/2 (chosen / n_chosen + rejected / n_rejected)

Shapes: sums of log-probs and token counts [P] in, loss per pair [P] out. Both answers are learned, each after a
prompt that names its own rewards: the preference is then stated in the prompt, not built into the weights. The
reference arguments are not read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import finite

UNIT = "conditioned"


def rewards_in_context(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
) -> Tensor:
    likely, ok = finite(0.5 * (chosen / n_chosen.clamp_min(1) + rejected / n_rejected.clamp_min(1)))
    return torch.where(ok, -likely, 0.0)
