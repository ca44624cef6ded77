"""Log-ratios weighted by how much a token attends to the instructions.

"Diagnose, Localize, Align: A Full-Stack Framework for Reliable LLM Multi-Agent Systems under Instruction Conflicts"
2025 (SAIL, arXiv 2509.23188).

    log r_t = w_t (logp_t - old_t),        w = columns["attention"], scaled to mean 1 over the row, then clipped to
    [low, high]

Shapes: [T] in, [T] out, exactly 0 where not trainable or not finite. The column is the attention of the tokens' heads
to the span of the instructions (the update rule `attention_weights`); a row where it is 0 throughout has equal weights.
With equal weights this is `token`. Read from the abstract.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import live
from training.types import Batch

NEEDS = {"attention"}


def attended(logp: Tensor, old: Tensor, batch: Batch, *, low: float = 0.2, high: float = 5.0) -> Tensor:
    given = live(batch.columns.get("attention", torch.ones_like(old)), batch)
    mean = batch.per_token(batch.row_sum(given) / batch.row_tokens)
    weight = torch.where(mean > 0, given / mean.clamp_min(1e-12), 1.0).clamp(low, high)
    return live(weight * live(logp - old, batch), batch)
