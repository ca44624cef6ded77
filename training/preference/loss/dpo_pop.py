"""DPO with margins from preferences over preferences: which of two pairs was the stronger one?

"Adaptive Margin RLHF via Preference over Preferences" 2025 (arXiv 2509.22851).

    Delta = beta ((chosen - ref_chosen) - (rejected - ref_rejected));   of two pairs, A has the larger `margin`, B the smaller
    value of B = -log sigmoid(Delta_B)         value of A = lam * -log sigmoid(Delta_A - Delta_B) + (1 - lam) * -log sigmoid(Delta_A)

Shapes: sums of log-probs [P] in, loss per pair [P] out, pairs 2i and 2i + 1 compared (ROWS_PER_UNIT = 2). margin [P]:
only its order within the two counts; if the margins are equal, both values are DPO's. stop_gradient makes B's margin a
constant in A's value; without it A's value also pushes B's margin down, which makes margins ordinal. Read from the
abstract: the loss is the most plausible reading, and pairs are compared in the order in which they are drawn.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import finite

NEEDS = {"reference"}
ROWS_PER_UNIT = 2


def dpo_pop(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    margin: Tensor,
    beta: float = 0.1,
    lam: float = 1.0,
    stop_gradient: bool = False,
) -> Tensor:
    d, ok = finite((chosen - ref_chosen) - (rejected - ref_rejected))
    delta, strength = (beta * d).view(-1, 2), margin.view(-1, 2)
    other, fine = delta.flip(1), ok.view(-1, 2)
    known = (strength > strength.flip(1)) & fine.flip(1)  # this pair is A, and pair B exists
    held = other.detach() if stop_gradient else other
    plain = -logsigmoid(delta)
    values = torch.where(known, lam * -logsigmoid(delta - held) + (1 - lam) * plain, plain)
    return torch.where(ok, values.flatten(), 0.0)
