"""Imitates off-policy rows: demonstrations, answers that had help, answers of an earlier policy.

Forward KL and JS rehearsal: "The Choice of Divergence: A Neglected Key to Mitigating Diversity Collapse in
Reinforcement Learning with Verifiable Reward", 2025 (DPH-RL, arXiv 2509.07430); demonstrations with RL: Rajeswaran et
al. 2017 (DAPG, arXiv 1709.10087).

    forward   value_t = -coef log p_t                                       u_t = p_t / q_t, q the author's log-probs as
              recorded
    js        value_t = coef (u log u - (u + 1) log((u + 1) / 2))           0 at u = 1, and flat there

Shapes: stats.logp, columns["sampling_logp"] [T] and columns["off_policy"] [R] in, values [T] out; mean over the off_policy
tokens of the step (`prepare`). Both pull probability back to the author's answers; neither needs a model of the author.
"""

from __future__ import annotations

from typing import Literal

import torch

from training.learner.reduction import LIMIT, live
from training.types import Batch, Terms, TokenStats


def prepare(batch: Batch, **_: object) -> None:
    """Adds totals["external_tokens"], at least 1."""
    foreign = batch.per_token(batch.columns["off_policy"]) > 0.5
    batch.totals["external_tokens"] = max(1.0, float((foreign & batch.trainable).sum()))


def imitation(
    stats: TokenStats, batch: Batch, *, coef: float = 0.1, divergence: Literal["forward", "js"] = "forward"
) -> Terms:
    foreign = batch.per_token(batch.columns["off_policy"]) > 0.5
    if divergence == "forward":
        loss = -live(stats.logp, batch)
    else:
        d = live(stats.logp - batch.columns["sampling_logp"], batch).clamp(-LIMIT, LIMIT / 2)
        u = d.exp()
        loss = u * d - (u + 1) * torch.log((u + 1) / 2)
    return Terms(values=torch.where(foreign, coef * live(loss, batch), 0.0), denominator="external_tokens")
