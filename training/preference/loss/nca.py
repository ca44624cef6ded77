"""Noise contrastive alignment on pairs.

Chen et al. 2024, "Noise Contrastive Alignment of Language Models with Explicit Rewards" (arXiv 2402.05369), pairwise
form.

    c = beta (chosen - ref_chosen),   r = beta (rejected - ref_rejected)
    value = -log sigmoid(c) - 1/2 log sigmoid(-c) - 1/2 log sigmoid(-r)

Shapes: sums of log-probs [P] in, loss per pair [P] out. The two log-ratios are anchored one by one, not only their
difference, so the chosen answer's log-prob does not fall with the rejected one's. Leaves out explicit rewards and more
than two answers.
TRL: DPOTrainer `nca_pair`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def nca(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.01,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    c, r = beta * better, beta * worse
    return torch.where(ok, -logsigmoid(c) - 0.5 * logsigmoid(-c) - 0.5 * logsigmoid(-r), 0.0)
