"""DPO's loss over all pairs of a right and a wrong answer of a group, plus the likelihood of the right ones.

Da et al. 2025, "Agent-RLVR: Training Software Engineering Agents via Guidance and Environment Rewards"; Rafailov et al.
2023, "Direct Preference Optimization" (arXiv 2305.18290).

    mean over pairs (i right, j wrong) of a group of  -log sigmoid( beta (d_i - d_j) ),       d = log p(y) - log
    reference(y)
    - nll * mean over the right i of 1/|y_i| log p(y_i)

Shapes: stats.logp [T] in, values [T] out, summed over a group and averaged over groups; a group without a pair has its
second term alone. The factor of each row is computed once for the step (`prepare`), from the policy before the update.
With one update per batch the gradient is exactly that of the loss, but the value is not. Right: reward above
`threshold`. Advantages and ratio are not used.
"""

from __future__ import annotations

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

NEEDS = {"reference", "old"}
EXCLUDES = {"ratio/sequence": "contrast compares whole answers with the reference and reads no ratio; use ratio token"}
ADVANTAGE_ONLY = False  # it has a gradient for zero advantage too


def prepare(batch: Batch, *, beta: float = 0.1, nll: float = 0.1, threshold: float = 0.5) -> None:
    """Adds columns["pull"] [R]: minus the factor of each row's summed log-prob in the loss. Raises ValueError if beta
    is not above 0."""
    if beta <= 0:
        raise ValueError(f"contrast: beta is {beta}; it is the price of moving away from the reference, above 0")
    d = batch.row_sum(live(batch.columns["old"] - batch.columns["reference"], batch).double()).clamp(
        -100 * LIMIT, 100 * LIMIT
    )
    right = batch.columns["reward"] > threshold
    pull = torch.zeros_like(d)
    for group in batch.group.unique():
        mine = batch.group == group
        good, bad = (mine & right).nonzero().squeeze(1), (mine & ~right).nonzero().squeeze(1)
        if len(good) and len(bad):
            push = beta * torch.sigmoid(beta * (d[bad][None, :] - d[good][:, None])) / (len(good) * len(bad))
            pull[good], pull[bad] = push.sum(1), -push.sum(0)
        if len(good):
            pull[good] += nll / len(good) / batch.row_tokens[good]
    batch.add("pull", pull.to(torch.float32), "row")


def contrast(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    beta: float = 0.1,
    nll: float = 0.1,
    threshold: float = 0.5,
) -> Terms:
    return Terms(
        values=-live(batch.per_token(batch.columns["pull"]) * live(stats.logp, batch), batch), denominator="groups"
    )
