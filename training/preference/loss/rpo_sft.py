"""Regularised preference optimisation: DPO and the log-prob of the chosen answer.

Liu et al. 2024, "Provably Mitigating Overoptimization in RLHF: Your SFT Loss is Implicitly an Adversarial Regularizer"
(arXiv 2405.16436).

    value = -log sigmoid( beta ((chosen - ref_chosen) - (rejected - ref_rejected)) ) - sft_coef * chosen

Shapes: sums of log-probs [P] in, loss per pair [P] out. sft_coef is the paper's eta beta; the baseline policy is the
chosen answers. `per_token` divides that log-prob by the answer's length: then it is what `sft_weight` of the stage
`prefer` adds to any loss. Leaves out samples of the reference as baseline.
TRL: DPOTrainer `sigmoid` and `sft`, with `per_token` at equal lengths.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}


def rpo_sft(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.01,
    sft_coef: float = 0.005,
    per_token: bool = False,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    likely = torch.where(ok, chosen, 0.0) / (n_chosen.clamp_min(1) if per_token else 1)
    return torch.where(ok, -logsigmoid(beta * (better - worse)) - sft_coef * likely, 0.0)
