"""The loss of a reward model on pairs that say how much better the chosen answer is.

Touvron et al. 2023, "Llama 2: Open Foundation and Fine-Tuned Chat Models" (arXiv 2307.09288), eq. 2.

    value = -log sigmoid(chosen - rejected - scale * margin) + centre * (chosen + rejected)^2

Shapes: chosen and rejected [P] are the scalar scores of the reward model, margin [P] the strength of each preference;
loss per pair [P] out; the other arguments are not read. margin 0 throughout is `bradley_terry`. Leaves out the map from
words of raters to margins.
TRL: RewardTrainer with margins.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite


def bradley_terry_margins(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    margin: Tensor,
    scale: float = 1.0,
    centre: float = 0.0,
) -> Tensor:
    d, ok = finite(chosen - rejected)
    both, _ = finite(chosen + rejected)
    return torch.where(ok, -logsigmoid(d - scale * margin) + centre * both.square(), 0.0)
