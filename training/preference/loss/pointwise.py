"""Binary cross-entropy on rewards: is this answer (or this step) right, each side for itself?

Lightman et al. 2023, "Let's Verify Step by Step" (arXiv 2305.20050), section 2; for reward models of answers, Cobbe et al. 2021, "Training
Verifiers to Solve Math Word Problems" (arXiv 2110.14168).

    value = -log sigmoid(chosen) - log sigmoid(-rejected) - pairwise * log sigmoid(chosen - rejected)

Shapes: here chosen and rejected [P] are the scalar scores of the reward model, which become log-odds of being right; loss per pair [P]
out; the other arguments are not read. `pairwise` > 0 adds Bradley and Terry's loss, so that one model ranks and gives an absolute
quality. Leaves out labels between right and wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite


def pointwise(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    pairwise: float = 0.0,
) -> Tensor:
    """Raises ValueError for a negative weight."""
    if pairwise < 0:
        raise ValueError(f"pointwise: pairwise is {pairwise}: a weight of at least 0")
    d, ok = finite(chosen - rejected)
    better, worse = (torch.where(ok, x, 0.0) for x in (chosen, rejected))
    return torch.where(ok, -logsigmoid(better) - logsigmoid(-worse) - pairwise * logsigmoid(d), 0.0)
