"""The loss of a reward model on pairs.

Bradley and Terry 1952, "Rank Analysis of Incomplete Block Designs"; Ouyang et al. 2022, "Training language models to
follow instructions with human feedback" (arXiv 2203.02155).

    value = -log sigmoid(chosen - rejected - margin) + centre * (chosen + rejected)^2

Shapes: here chosen and rejected [P] are the scalar scores of the reward model; loss per pair [P] out; the other
arguments are not read. Only differences of scores are identified, so `centre` > 0 pulls their mean to 0 (Eisenstein et
al. 2023, arXiv 2312.09244). Leaves out margins that differ from pair to pair.
TRL: RewardTrainer.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite


def bradley_terry(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    margin: float = 0.0,
    centre: float = 0.0,
) -> Tensor:
    d, ok = finite(chosen - rejected)
    both, _ = finite(chosen + rejected)
    return torch.where(ok, -logsigmoid(d - margin) + centre * both.square(), 0.0)
