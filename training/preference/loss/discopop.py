"""The loss that a language model discovered: a blend of logistic and exponential loss.

Lu et al. 2024, "Discovering Preference Optimization Algorithms with and for Large Language Models" (arXiv 2406.08414),
eq. 5.

    x = beta ((chosen - ref_chosen) - (rejected - ref_rejected)),   m = sigmoid(x / tau)
    value = -(1 - m) log sigmoid(x) + m exp(-x)

Shapes: sums of log-probs [P] in, loss per pair [P] out. It is not convex: with tau below (1 - ln 2) / 3 = 0.102, the
published 0.05 included, the slope turns round at no margin: from x = 0 descent goes to a minimum at x < 0, unless the
other pairs of a step carry the pair over it. m exp(-x) is computed as one exponential, so that neither factor overflows
alone.
TRL: DPOTrainer `discopop`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def discopop(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    tau: float = 0.05,
) -> Tensor:
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    x = beta * d
    logistic = -logsigmoid(x) * (-x / tau).sigmoid()
    exponential = (logsigmoid(x / tau) - x).exp()
    return torch.where(ok, logistic + exponential, 0.0)
