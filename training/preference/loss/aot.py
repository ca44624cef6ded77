"""Alignment via optimal transport: the distribution of margins must dominate, not the margin of each pair.

Melnyk et al. 2024, "Distributional Preference Alignment of LLMs via Optimal Transport" (arXiv 2406.05882).

    paired    u = sorted(chosen - rejected),           v = sorted(ref_chosen - ref_rejected)      over the pairs of the step
    unpaired  u = sorted(chosen - ref_chosen),         v = sorted(rejected - ref_rejected)
    value_k = -(1 - s) log sigmoid(beta (u_k - v_k)) - s log sigmoid(-beta (u_k - v_k))

Shapes: sums of log-probs [P] in, loss per pair [P] out: value_k at the pair whose u_k it is. In one dimension
sorting is the optimal coupling, so the loss asks for stochastic dominance of first order. It looks at all pairs of a step at once
(ROWS_PER_UNIT = 0): the step is one micro-batch. s = label_smoothing. Leaves out the hinge and other penalties of the paper.
TRL: DPOTrainer `aot`, `aot_unpaired`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}
ROWS_PER_UNIT = 0


def aot(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    label_smoothing: float = 0.0,
    coupling: Literal["paired", "unpaired"] = "paired",
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    if coupling == "paired":
        base = torch.where(ok, ref_chosen - ref_rejected, 0.0)
        u, v = better - worse + base, base
    elif coupling == "unpaired":
        u, v = better, worse
    else:
        raise ValueError(f"coupling is {coupling!r}; choose 'paired' or 'unpaired'")
    alive = ok.nonzero().squeeze(1)
    u, order = u.index_select(0, alive).sort()
    x = beta * (u - v.index_select(0, alive).sort().values)
    values = -(1 - label_smoothing) * logsigmoid(x) - label_smoothing * logsigmoid(-x)
    return torch.zeros_like(chosen).index_add(0, alive.index_select(0, order), values)
