"""Identity preference optimisation.

Azar et al. 2023, "A General Theoretical Paradigm to Understand Learning from Human Preferences" (arXiv 2310.12036), eq.
17.

    d = (chosen - ref_chosen) - (rejected - ref_rejected)         value = (d - 1 / (2 beta))^2

Shapes: sums of log-probs [P] in, loss per pair [P] out. The squared loss has its minimum at a finite margin, so that
certain preferences do not drive the policy away from the reference for ever. `per_token` divides each log-ratio by its
answer's length first, as the authors later advised and TRL does. Leaves out nothing of the loss.
TRL: DPOTrainer `ipo` is `per_token`; CPOTrainer `ipo` the sum, without a reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import finite

NEEDS = {"reference"}


def ipo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    per_token: bool = False,
) -> Tensor:
    better, worse = chosen - ref_chosen, rejected - ref_rejected
    if per_token:
        better, worse = better / n_chosen.clamp_min(1), worse / n_rejected.clamp_min(1)
    d, ok = finite(better - worse)
    return torch.where(ok, (d - 1 / (2 * beta)).square(), 0.0)
