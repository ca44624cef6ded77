"""Hinge loss of the margin over the reference.

Liu et al. 2023, "Statistical Rejection Sampling Improves Preference Optimization" (RSO, arXiv 2309.06657), hinge-norm;
without a reference it is the calibration loss of Zhao et al. 2023, "SLiC-HF" (arXiv 2305.10425).

    d = (chosen - ref_chosen) - (rejected - ref_rejected)         value = max(0, 1 - beta d)

Shapes: sums of log-probs [P] in, loss per pair [P] out. A pair whose margin has reached 1 / beta has exactly no
gradient, so easy pairs stop moving the policy. Leaves out sampling the pairs from the optimal policy by rejection.
TRL: DPOTrainer `hinge`; without a reference, CPOTrainer `hinge`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import finite

NEEDS = {"reference"}


def hinge(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
) -> Tensor:
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    return torch.where(ok, torch.relu(1 - beta * d), 0.0)
