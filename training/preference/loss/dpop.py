"""DPO-Positive: the chosen answer may not become less likely than under the reference.

Pal et al. 2024, "Smaug: Fixing Failure Modes of Preference Optimisation with DPO-Positive" (arXiv 2402.13228).

    d = (chosen - ref_chosen) - (rejected - ref_rejected)
    value = -log sigmoid( beta (d - lam * max(0, ref_chosen - chosen)) )

Shapes: sums of log-probs [P] in, loss per pair [P] out. If two answers differ in few tokens, DPO can widen the margin
by making both less likely; the penalty makes that costly. While the chosen answer is more likely than under the
reference, this is DPO. Leaves out nothing of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def dpop(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.3,
    lam: float = 50.0,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    return torch.where(ok, -logsigmoid(beta * (better - worse - lam * torch.relu(-better))), 0.0)
