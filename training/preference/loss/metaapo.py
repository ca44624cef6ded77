"""Meta-weighted DPO on an offline pair and an on-policy pair of the same prompt.

"Alignment through Meta-Weighted Online Sampling: Bridging the Gap between Data Generation and Preference Optimization"
2025 (MetaAPO, arXiv 2509.23371).

    l = -log sigmoid( beta ((chosen - ref_chosen) - (rejected - ref_rejected)) )
    value of the offline pair = w l,       value of the on-policy pair = (1 - w) l

Shapes: sums of log-probs [P] in, loss per pair [P] out: pair 2i is offline, pair 2i + 1 on-policy (ROWS_PER_UNIT = 2).
weight [P] is w for both pairs, without gradient: the update rule `meta_weight` learns it as
a function of the offline pair's own log sigmoid. A prompt without an on-policy pair has its offline pair twice, which
is DPO.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss.wdpo import wdpo

NEEDS = {"reference", "meta_weight"}
ROWS_PER_UNIT = 2
UNIT = "meta"


def metaapo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    weight: Tensor,
    beta: float = 0.1,
) -> Tensor:
    online = torch.arange(len(weight), device=weight.device) % 2 == 1
    w = torch.where(online, 1 - weight, weight)
    return wdpo(chosen, rejected, ref_chosen, ref_rejected, n_chosen, n_rejected, weight=w, beta=beta)
