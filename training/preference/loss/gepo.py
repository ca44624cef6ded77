"""Group equivalent preference optimisation: winners are preferred to losers, and winners are equally good.

"On-Policy Optimization with Group Equivalent Preference for Multi-Programming Language Understanding" 2025 (arXiv 2505.12723).

    r = log-ratio of an answer to the reference;   winners: the chosen answers of two pairs of one prompt, losers: their rejected ones
    value = -log sigmoid( beta (mean r of winners - mean r of losers) ) + lam * Var(r of winners)

Shapes: sums of log-probs [P] in, [P] out: both pairs of a unit carry its loss (ROWS_PER_UNIT = 2), so that the mean over pairs is the mean
over units. The variance (of the population) is the Lagrangian of "equivalent answers are equally good". A pair given twice is DPO. The
paper adds it to on-policy RL with weight 0.01. Leaves out groups of other sizes than two.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}
ROWS_PER_UNIT = 2
UNIT = "prompt"


def gepo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    lam: float = 1.0,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    winners, losers = better.view(-1, 2), worse.view(-1, 2)
    unit = -logsigmoid(beta * (winners.mean(1) - losers.mean(1))) + lam * winners.var(1, correction=0)
    return torch.where(ok.view(-1, 2).all(1), unit, 0.0).repeat_interleave(2)
