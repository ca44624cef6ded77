"""Multi-level aware preference: contrast of prompts, and a margin that must grow with the number of instructions.

"Multi-Level Aware Preference Learning: Enhancing RLHF for Complex Multi-Instruction Tasks" 2025 (arXiv 2505.12845).

    s(x, y) = beta * log-ratio;   three pairs: (x: yw over yl), (x': yw over yl) with instructions added that yl breaks,
    and the answer yw after a prompt that it satisfies over yw after one that it does not
    value = -log sigmoid(m1) - inter * log sigmoid(m2 - m1) - intra * log sigmoid(m3),       m = s of chosen - s of rejected

Shapes: sums of log-probs [P] in, [P] out, pairs 3i, 3i + 1, 3i + 2 forming one unit (ROWS_PER_UNIT = 3); each pair
carries the loss of its unit, so that the mean over pairs is the mean over units. inter = intra = 0 is DPO of the first
pair. Read from the abstract: the formulas are our reading.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}
ROWS_PER_UNIT = 3
UNIT = "instructions"


def mapl(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    intra: float = 1.0,
    inter: float = 0.5,
) -> Tensor:
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    base, more, prompts = (beta * d).view(-1, 3).unbind(1)
    unit = -logsigmoid(base) - inter * logsigmoid(more - base) - intra * logsigmoid(prompts)
    return torch.where(ok.view(-1, 3).all(1), unit, 0.0).repeat_interleave(3)
