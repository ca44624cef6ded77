"""Efficient exact optimisation: the reverse KL between the policy's and the labels' distribution over the pair.

Ji et al. 2024, "Towards Efficient Exact Optimization of Language Model Alignment" (arXiv 2402.00856), eq. 16.

    d = (chosen - ref_chosen) - (rejected - ref_rejected),   q = sigmoid(beta d)
    value = q (log q - log(1 - e)) + (1 - q) (log(1 - q) - log e)

Shapes: sums of log-probs [P] in, loss per pair [P] out. It is KL((q, 1 - q) || (1 - e, e)): exactly 0 if q = 1 - e.
DPO minimises the KL in the other direction. e = label_smoothing must be above 0, or the KL is infinite. Leaves out the
form with a reward model and K answers.
TRL: DPOTrainer `exo_pair`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def exo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.001,
) -> Tensor:
    if not 0 < label_smoothing < 0.5:
        raise ValueError(
            f"label_smoothing is {label_smoothing}: the loss is a KL to (1 - e, e) and needs it above 0 and below 1/2"
        )
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    x = beta * d
    better = x.sigmoid() * (logsigmoid(x) - math.log1p(-label_smoothing))
    worse = (-x).sigmoid() * (logsigmoid(-x) - math.log(label_smoothing))
    return torch.where(ok, better + worse, 0.0)
