"""Multi-objective DPO: the pairs express one objective, and a margin represents the others.

Zhou et al. 2023, "Beyond One-Preference-Fits-All Alignment: Multi-Objective Direct Preference Optimization" (arXiv
2310.03708).

    d = (chosen - ref_chosen) - (rejected - ref_rejected)
    value = -log sigmoid( (beta d - (1 - w) other) / w )

Shapes: sums of log-probs [P] in, loss per pair [P] out. other [P] is the difference (chosen minus rejected) of the
other objectives' reward, combined into one number; w = weight of the objective that the pairs express. Its optimum is
that of RLHF on w r + (1 - w) other, with the KL weighted by beta. w = 1 is DPO. Raises ValueError for w outside (0, 1].
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def modpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    other: Tensor,
    beta: float = 0.1,
    weight: float = 0.5,
) -> Tensor:
    if not 0 < weight <= 1:
        raise ValueError(
            f"weight is {weight}: the share of the objective that the pairs express must be above 0 and at most 1"
        )
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    return torch.where(ok, -logsigmoid((beta * d - (1 - weight) * other) / weight), 0.0)
