"""Unlearns off-policy answers: negative preference optimisation.

Zhang et al. 2024, "Negative Preference Optimization: From Catastrophic Collapse to Effective Unlearning" (arXiv
2404.05868); to keep a policy from recalling instead of reasoning: "Reasoning or Retrieval?", 2025 (FARL, arXiv
2509.24156).

    loss_i = 2 / beta log(1 + (p(y_i) / reference(y_i))^beta)          of the off_policy rows, their mean

Shapes: stats.logp, columns["reference"] [T] and columns["off_policy"] [R] in, values [T] out (a row's loss shared by its
tokens). Its gradient decays as the answer becomes unlikely relative to the reference, where plain gradient ascent would
diverge. `prepare` counts the rows.
"""

from __future__ import annotations

import torch
from torch.nn.functional import softplus

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

NEEDS = {"reference"}


def prepare(batch: Batch, **_: object) -> None:
    """Adds totals["external_rows"], at least 1."""
    batch.totals["external_rows"] = max(1.0, float((batch.columns["off_policy"] > 0.5).sum()))


def unlearn(stats: TokenStats, batch: Batch, *, coef: float = 0.5, beta: float = 0.1) -> Terms:
    if beta <= 0:
        raise ValueError(
            f"unlearn: beta is {beta}; it must be above 0, and as it goes to 0 the loss becomes plain ascent"
        )
    d = batch.row_sum(live(stats.logp - batch.columns["reference"], batch)).clamp(-100 * LIMIT, 100 * LIMIT)
    loss = torch.where(batch.columns["off_policy"] > 0.5, coef * 2 / beta * softplus(beta * d), 0.0)
    return Terms(values=live(batch.per_token(loss / batch.row_tokens), batch), denominator="external_rows")
