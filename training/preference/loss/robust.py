"""Robust DPO: an unbiased loss under labels flipped at a known rate.

Chowdhury et al. 2024, "Provably Robust DPO: Aligning Language Models with Noisy Feedback" (arXiv 2403.00409).

    d = (chosen - ref_chosen) - (rejected - ref_rejected)
    value = ( -(1 - e) log sigmoid(beta d) + e log sigmoid(-beta d) ) / (1 - 2 e)

Shapes: sums of log-probs [P] in, loss per pair [P] out. e = flip_rate is the share of flipped labels: in expectation
over the flips the value is the DPO loss of the clean label. Label smoothing in `dpo` has the opposite sign on the
second term and is biased. Assumes flips independent of the pair. Raises ValueError for a flip rate outside [0, 1/2).
TRL: DPOTrainer `robust`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def robust(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    flip_rate: float = 0.1,
) -> Tensor:
    if not 0 <= flip_rate < 0.5:
        raise ValueError(f"flip_rate is {flip_rate}: the share of flipped labels must be at least 0 and below 1/2")
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    values = -(1 - flip_rate) * logsigmoid(beta * d) + flip_rate * logsigmoid(-beta * d)
    return torch.where(ok, values / (1 - 2 * flip_rate), 0.0)
