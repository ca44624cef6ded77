"""Symmetric preference: for two contexts with one answer each, each answer must fit its own context.

"Mitigating Visual Hallucinations via Semantic Curriculum Preference Optimization in MLLMs" 2025 (SCPO, arXiv 2509.24491), on text.

    r(y | x) = log-ratio to the reference;   pair 1 is (x1: y1 over y2), pair 2 is (x2: y2 over y1)
    value of pair i = -text log sigmoid( beta (r(yi | xi) - r(yj | xi)) ) - context log sigmoid( beta (r(yi | xi) - r(yi | xj)) )

Shapes: sums of log-probs [P] in, loss per pair [P] out, pairs 2i and 2i + 1 forming one unit (ROWS_PER_UNIT = 2): the
rejected answer of one is the chosen of the other. An answer that is likely in any context does not lower the second
term. context = 0 is DPO. Read from the abstract. The staged reference is a round with `renew`; the order from easy to
hard is the order of rounds.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from training.preference.loss import log_ratios

NEEDS = {"reference"}
ROWS_PER_UNIT = 2
UNIT = "contrast"


def scpo(
    chosen: Tensor,
    rejected: Tensor,
    ref_chosen: Tensor,
    ref_rejected: Tensor,
    n_chosen: Tensor,
    n_rejected: Tensor,
    *,
    beta: float = 0.1,
    text: float = 1.0,
    context: float = 1.0,
) -> Tensor:
    better, worse, ok = log_ratios(chosen, rejected, ref_chosen, ref_rejected)
    mirrored = worse.view(-1, 2).flip(1).flatten()  # r(y1 | x2) beside r(y1 | x1)
    values = -text * logsigmoid(beta * (better - worse)) - context * logsigmoid(beta * (better - mirrored))
    return torch.where(ok.view(-1, 2).all(1).repeat_interleave(2), values, 0.0)
