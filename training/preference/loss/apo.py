"""Anchored preference optimisation.

D'Oosterlinck et al. 2024, "Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in
Alignment" (arXiv 2408.06266).

    c = beta (chosen - ref_chosen),   r = beta (rejected - ref_rejected)
    zero value = 1 - sigmoid(c) + sigmoid(r)            the chosen answer is better than what the model says: raise it
    down  value = sigmoid(c) + 1 - sigmoid(c - r)        it is worse: may lower the chosen, and the rejected by more

Shapes: sums of log-probs [P] in, loss per pair [P] out. DPO does not determine whether both log-probs rise or fall; the
anchor does. Leaves out the contrastive revisions that make the pairs.
TRL: DPOTrainer `apo_zero`, `apo_down`; KTOTrainer `apo_zero_unpaired` is half of zero.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def apo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    anchor: Literal["zero", "down"] = "zero",
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    c, r = beta * better, beta * worse
    if anchor == "zero":
        values = (-c).sigmoid() + r.sigmoid()
    elif anchor == "down":
        values = c.sigmoid() + (r - c).sigmoid()
    else:
        raise ValueError(f"anchor is {anchor!r}; choose 'zero' or 'down'")
    return torch.where(ok, values, 0.0)
