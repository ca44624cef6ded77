"""Contrastive preference optimisation: DPO with a uniform reference.

Xu et al. 2024, "Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine Translation"
(arXiv 2401.08417).

    value = -log sigmoid( beta (chosen - rejected) )

Shapes: sums of log-probs [P] in, loss per pair [P] out; the reference arguments are not read, so one model is enough.
The paper adds the next-token loss of the chosen answer with weight 1: that is `sft_weight` of the stage `prefer`, which
replaces the reference in keeping the policy near the data.
TRL: CPOTrainer `sigmoid`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite


def cpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
) -> Tensor:
    d, ok = finite(chosen - rejected)
    return torch.where(ok, -logsigmoid(beta * d), 0.0)
