"""Odds ratio preference optimisation: supervised loss and preference loss in one, without a reference.

Hong et al. 2024, "ORPO: Monolithic Preference Optimization without Reference Model" (arXiv 2403.07691).

    c = chosen / n_chosen,   r = rejected / n_rejected,   log odds(x) = x - log(1 - exp(x))
    value = -c - lam * log sigmoid( log odds(c) - log odds(r) )

Shapes: sums of log-probs and token counts [P] in, loss per pair [P] out; the reference arguments are not read. The
next-token loss of the chosen answer is part of the value: leave the stage's own (`sft_weight`) at 0. Mean log-probs are
clamped below 0, where odds are finite.
TRL: ORPOTrainer, at equal lengths.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite


def orpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    lam: float = 0.1,
) -> Tensor:
    c, fine = finite(chosen / n_chosen.clamp_min(1))
    r, also = finite(rejected / n_rejected.clamp_min(1))
    gap = _log_odds(c) - _log_odds(r)
    return torch.where(fine & also, -c - lam * logsigmoid(gap), 0.0)


def _log_odds(mean: Tensor) -> Tensor:
    mean = mean.clamp_max(-1e-6)
    return mean - torch.log(-torch.expm1(mean))
