"""The policy's own likelihood of an answer is its confidence, and is trained to match the reward.

"C2GSPG: Confidence-calibrated Group Sequence Policy Gradient towards Self-aware Reasoning", 2025 (arXiv 2509.23129).

    s_i = 1/|o_i| sum_t log p_t,   c_i = exp(s_i)         loss_i = -r_i log c_i - (1 - r_i) log(1 - c_i)
    dropped if `conflict` is set and the sign of (r_i - c_i) differs from that of the row's advantage

Shapes: stats.logp [T], columns["reward"] [R] and columns["advantage"] [T] in, values [T] out (a row's loss shared by its
tokens), mean over rows. For rewards of 0 and 1 its gradient has the direction of the policy gradient. c is kept below 1
- eps. Assumes rewards in [0, 1]; leaves out the squashing of other rewards. Read from the abstract.
"""

from __future__ import annotations

import torch

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats


def calibration(
    stats: TokenStats, batch: Batch, *, coef: float = 0.05, conflict: bool = True, eps: float = 1e-6
) -> Terms:
    s = batch.row_sum(live(stats.logp, batch)) / batch.row_tokens
    r = batch.columns["reward"].clamp(0, 1)
    c = s.clamp(-80.0, 0.0).exp().clamp(max=1 - eps)
    loss = -r * s - (1 - r) * torch.log1p(-c)
    if conflict:
        advantages = batch.row_sum(live(batch.columns["advantages"], batch))
        loss = torch.where((r - c.detach()) * advantages < 0, 0.0, loss)
    return Terms(values=live(batch.per_token(coef * loss / batch.row_tokens), batch), denominator="sequences")
