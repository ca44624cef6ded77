"""Supervised learning of the chosen answer alone: rejection sampling, expert iteration.

Touvron et al. 2023, "Llama 2: Open Foundation and Fine-Tuned Chat Models" (arXiv 2307.09288), sec. 3.2.3; Wang et al.
2024, "Arithmetic Control of LLMs for Diverse User Preferences: Directional Preference Alignment with Multi-Objective
Rewards" (arXiv 2402.18571).

    value = -chosen / n_chosen

Shapes: sums of log-probs and token counts [P] in, loss per pair [P] out. The rejected answer is not read: in rounds of
sampled pairs the chosen one is the best of n, and imitating it is the whole method.
TRL: DPOTrainer `sft`, at equal lengths.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.preference.loss import finite


def sft(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
) -> Tensor:
    likely, ok = finite(chosen / n_chosen.clamp_min(1))
    return torch.where(ok & torch.isfinite(rejected), -likely, 0.0)
