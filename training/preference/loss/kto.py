"""Kahneman-Tversky optimisation: each answer is judged alone, relative to the policy's mean gain on unrelated answers.

Ethayarajh et al. 2024, "KTO: Model Alignment as Prospect Theoretic Optimization" (arXiv 2402.01306), eq. 7 and 8.

    c = chosen - ref_chosen,   r = rejected - ref_rejected,   z = max(0, mean log-ratio of answers to other prompts)
    value = 1/2 [ desirable (1 - sigmoid(beta (c - z))) + undesirable (1 - sigmoid(beta (z - r))) ]

Shapes: sums of log-probs [P] in, loss per pair [P] out: the mean of its two examples. baseline [P] is z, without
gradient, the same for all pairs of a step; the pass "mismatched" estimates it from the answers of the step, each after
the prompt of the next pair. Leaves out examples that have no counterpart, for which the two weights are meant.
TRL: KTOTrainer `kto`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import log_ratios

NEEDS = {"reference", "mismatched"}


def kto(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    baseline: Tensor,
    beta: float = 0.1,
    desirable: float = 1.0,
    undesirable: float = 1.0,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    good = (beta * (baseline - better)).sigmoid()
    bad = (beta * (worse - baseline)).sigmoid()
    return torch.where(ok, 0.5 * (desirable * good + undesirable * bad), 0.0)
