"""Length-normalised DPO: the log-ratio of an answer is its mean over tokens.

Lambert et al. 2024, "Tulu 3: Pushing Frontiers in Open Language Model Post-Training" (arXiv 2411.15124), sec. 5.

    d = (chosen - ref_chosen) / n_chosen - (rejected - ref_rejected) / n_rejected         value = -log sigmoid(beta d)

Shapes: sums of log-probs and token counts [P] in, loss per pair [P] out. beta is larger than DPO's (the paper: 5),
because a mean is smaller than a sum. Leaves out nothing of the loss.
TRL: DPOTrainer `sigmoid_norm`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def dpo_norm(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 5.0,
) -> Tensor:
    better, worse = (chosen - ref_chosen) / n_chosen.clamp_min(1), (rejected - ref_rejected) / n_rejected.clamp_min(1)
    d, ok = finite(better - worse)
    return torch.where(ok, -logsigmoid(beta * d), 0.0)
