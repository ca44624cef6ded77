"""Log-ratios divided by the length of their turn: an answer's sum is then the sum over its turns of their mean
log-ratio.

Zhou et al. 2025, "SWEET-RL: Training Multi-Turn LLM Agents on Collaborative Reasoning Tasks".

    log r_t = (logp_t - old_t) / |turn of t|,      so sum_t log r_t = sum_k A_k,  A_k = the mean of logp_t - old_t over
    turn k

Shapes: [T] in, [T] out, exactly 0 where not trainable or not finite. The advantage of a turn is a language model's mean
log-ratio to the reference, whatever its context; long turns do not count more. columns["turn"] numbers the turns of a
row; without it a row is one turn. Made for a loss over pairs of trajectories (stage `prefer`, where old is the
reference). Leaves out the critic's extra context (see the recipe).
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import live
from training.types import Batch


def per_turn(logp: Tensor, old: Tensor, batch: Batch) -> Tensor:
    turn = torch.where(batch.trainable, batch.columns.get("turn", torch.zeros_like(old)), 0.0).long()
    place = batch.row * (int(turn.max()) + 1) + turn
    zeros = torch.zeros(batch.rows * (int(turn.max()) + 1), dtype=torch.float32, device=place.device)
    size = zeros.index_add(0, place, batch.trainable.float()).clamp_min(1)[place]
    return live(live(logp - old, batch) / size, batch)
