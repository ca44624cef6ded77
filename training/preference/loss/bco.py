"""Binary classifier optimisation on pairs: the log-ratio of each answer is the logit of "is it good?".

Jung et al. 2024, "Binary Classifier Optimization for Large Language Model Alignment" (arXiv 2404.04656).

    value = -log sigmoid( beta (chosen - ref_chosen) ) - log sigmoid( -beta (rejected - ref_rejected) )

Shapes: sums of log-probs [P] in, loss per pair [P] out. It bounds the DPO loss from above up to the error of the reward
shift, and anchors both answers. Leaves out the running reward shift and the density ratio of prompts, which matter for
examples without a counterpart.
TRL: DPOTrainer `bco_pair`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def bco(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    return torch.where(ok, -logsigmoid(beta * better) - logsigmoid(-beta * worse), 0.0)
