"""Ranking of mean log-probs, and supervised learning of the best answer.

Yuan et al. 2023, "RRHF: Rank Responses to Align Language Models with Human Feedback without tears" (arXiv 2304.05302);
the loss of CycleAlign, Hong et al. 2023 (arXiv 2310.16271).

    p = sum of log-probs / number of tokens
    value = max(0, p_rejected - p_chosen + margin) - sft * chosen / n_chosen

Shapes: sums of log-probs and token counts [P] in, loss per pair [P] out; the reference arguments are not read. A tie
counts as wrongly ranked: it has the slope of a pair in the wrong order. The paper sums `chosen` over its tokens; here
it is divided like p. Leaves out lists of more than two answers, whose loss is the sum over their pairs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import finite


def rrhf(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    gap: float = 0.0,
    sft: float = 1.0,
) -> Tensor:
    best, fine = finite(chosen / n_chosen.clamp_min(1))
    other, also = finite(rejected / n_rejected.clamp_min(1))
    wrong = other - best + gap
    return torch.where(fine & also, torch.where(wrong >= 0, wrong, 0.0) - sft * best, 0.0)
