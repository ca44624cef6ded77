"""Direct preference optimisation.

Rafailov et al. 2023, "Direct Preference Optimization: Your Language Model is Secretly a Reward Model" (arXiv
2305.18290); label smoothing: Mitchell 2023, "A note on DPO with noisy preferences & relationship to IPO".

    d = (chosen - ref_chosen) - (rejected - ref_rejected)
    value = -(1 - s) log sigmoid(beta d) - s log sigmoid(-beta d)

Shapes: sums of log-probs [P] in, loss per pair [P] out. s = label_smoothing is the believed share of flipped labels.
Assumes that the reference stays fixed. Leaves out length normalisation: a longer answer contributes a larger sum of
log-probs.
TRL: DPOTrainer `sigmoid`; with label smoothing, CPOTrainer `sigmoid` on log-ratios.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def dpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
) -> Tensor:
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    values = -(1 - label_smoothing) * logsigmoid(beta * d) - label_smoothing * logsigmoid(-beta * d)
    return torch.where(ok, values, 0.0)
