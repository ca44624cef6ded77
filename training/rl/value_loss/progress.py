"""Values as contributions: over the tokens of a rollout they add up to its return.

Wang et al. 2025, "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution" (arXiv 2505.20732).

    loss_i = ( sum_t c_t - R_i )^2,        R_i the return at the first token: with critic_lambda 1 the reward of the
    rollout

Shapes: value and columns["returns"] [T] in, values [T] out, a rollout's loss shared evenly by its tokens; a mean over
rollouts. It learns how much each token contributes to the outcome from the outcome alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import live
from training.types import Batch, Terms


def progress(value: Tensor, batch: Batch) -> Terms:
    returns, on = live(batch.columns["returns"], batch), batch.trainable
    before = torch.cumsum(on.to(torch.float32), 0) - on.to(torch.float32)
    start = torch.full((batch.rows,), float("inf"), device=value.device).scatter_reduce(
        0, batch.row, torch.where(on, before, torch.inf), "amin"
    )
    first = on & (before == batch.per_token(start))
    gap = batch.row_sum(live(value, batch)) - batch.row_sum(torch.where(first, returns, 0.0))
    values = live(batch.per_token(gap.square() / batch.row_tokens), batch)
    return Terms(values=values, denominator="sequences")
