"""DPO whose beta grows with the margin of a reward model.

Zhang et al. 2025, "MM-RLHF: The Next Step Forward in Multimodal LLM Alignment" (arXiv 2502.10391).

    beta_i = beta (1 + w (1 - exp(-k g_i))),   g_i = max(0, margin_i)
    value = -log sigmoid( beta_i ((chosen - ref_chosen) - (rejected - ref_rejected)) )

Shapes: sums of log-probs [P] in, loss per pair [P] out; margin [P] is r(chosen) - r(rejected). The map is bounded: no
pair counts more than 1 + w times. Leaves out the critique that the paper's reward model writes before it scores.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}


def mm_dpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    margin: Tensor,
    beta: float = 0.1,
    w: float = 0.5,
    k: float = 0.5,
) -> Tensor:
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    strength = beta * (1 + w * (1 - (-k * margin.clamp_min(0)).exp()))
    return torch.where(ok, -logsigmoid(strength * d), 0.0)
