"""DPO with a weight for every pair.

"StepORLM: A Self-Evolving Framework With Generative Process Supervision For Operations Research Language Models" 2025
(arXiv 2509.22558).

    value = -w log sigmoid( beta ((chosen - ref_chosen) - (rejected - ref_rejected)) )

Shapes: sums of log-probs [P] in, loss per pair [P] out; weight [P] is w. In the paper a pair whose outcomes differ
should count more than one in which only the share of right steps does; its exact weight was not found; our reading is w
= 1 and w = that difference (column "process" of the pairs). Cleaners pass their weights in the same column.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def wdpo(
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
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    return torch.where(ok, -weight * logsigmoid(beta * d), 0.0)
