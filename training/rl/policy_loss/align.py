"""Imitation, exploration and their difference, weighted by the advantages of one group.

Wang et al. 2025, "Learning to Align, Aligning to Learn: A Unified Approach for Self-Optimized Alignment" (GRAO, arXiv
2508.07750).

    maximise  1/G sum_i A_i J(o_i) + beta A_y J(y) + lam/G sum_i A_i (J(o_i) - J(y)),         J = mean log-prob of an
    answer's tokens

y is the reference answer (the off_policy row of the group), o_i the G outputs of the policy. Shapes: advantage [T] of each
row in, values [T] out, summed over a group and averaged over groups. The coefficient of each row is computed once for
the step (`prepare`). There is no ratio, clip or KL. With A_y < 0 the reference answer becomes less likely; that cannot
happen if it scores best.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import live
from training.types import Batch, Terms, TokenStats


def prepare(batch: Batch, *, beta: float = 0.5, lam: float = 0.6) -> None:
    """Adds columns["pull"] [R]: the coefficient of J of each row."""
    foreign = batch.columns["off_policy"] > 0.5
    first = batch.row_sum(live(batch.columns["advantages"], batch)) / batch.row_tokens
    _, group = batch.group.unique(return_inverse=True)
    zeros = torch.zeros(int(group.max()) + 1, device=first.device)
    size = zeros.index_add(0, group, (~foreign).float()).clamp_min(1)[group]
    group_advantages = zeros.index_add(0, group, torch.where(foreign, 0.0, first))[group]
    batch.add(
        "pull", torch.where(foreign, beta * first - lam * group_advantages / size, first * (1 + lam) / size), "row"
    )


def align(
    log_ratio: Tensor, advantages: Tensor, stats: TokenStats, batch: Batch, *, beta: float = 0.5, lam: float = 0.6
) -> Terms:
    weight = batch.columns["pull"] / batch.row_tokens
    return Terms(values=-live(batch.per_token(weight) * live(stats.logp, batch), batch), denominator="groups")
