"""A budget of divergence from a teacher: free within it; beyond it there is no task reward, and a pull back to the
teacher.

"Rethinking Large Language Model Distillation: A Constrained Markov Decision Process Perspective", 2025 (arXiv
2509.22921); read from the abstract.

    c_t = log p_t - log teacher_t at sampling,      over_t = [ c_1 + ... + c_t > budget * tokens of the row ]
    value_t = coef 1/2 (log p_t - log teacher_t)^2  where over_t, else 0;      a row that ends over its budget has no
                                                    advantage

Shapes: columns["sampling_logp"] and columns["reference"] [T] in (`prepare`, once per step), values [T] out, mean over
tokens. The constraint is met by changing the reward, with no multiplier to tune. Budget infinity is plain RL, 0
distillation. The teacher is the reference.
"""

from __future__ import annotations

import torch

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats

NEEDS = {"reference"}


def prepare(batch: Batch, *, budget: float = 0.1, **_: object) -> None:
    """Adds columns["over"] [T] bool, and removes rows that end over their budget by columns["weight"]."""
    cost = live(batch.columns["sampling_logp"] - batch.columns["reference"], batch).double()
    total = batch.row_sum(cost)
    spent = torch.cumsum(cost, 0) - batch.per_token(torch.cumsum(total, 0) - total)
    allowed = budget * batch.row_tokens.double()
    batch.add("over", (spent > batch.per_token(allowed) + 1e-9) & batch.trainable, "token")
    feasible = batch.per_token((total <= allowed + 1e-9).float())
    batch.add("weight", batch.columns["weight"] * feasible if "weight" in batch.columns else feasible, "token")


def kl_budget(stats: TokenStats, batch: Batch, *, coef: float = 1.0, budget: float = 0.1) -> Terms:
    d = live(stats.logp - batch.columns["reference"], batch).clamp(-LIMIT, LIMIT)
    over = batch.columns["over"].bool()
    values = torch.where(over, coef * d.square() / 2, 0.0)
    return Terms(values=values, denominator="tokens", metrics={"over_budget": (over.sum(), batch.trainable.sum())})
