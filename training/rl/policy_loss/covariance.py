"""Holds back the tokens that reduce entropy most: those with the largest covariance of log-prob and advantage.

Cui et al. 2025, "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models" (Clip-Cov and KL-Cov,
arXiv 2505.22617).

    cov_t = (log p_t - mean log p) (A_t - mean A)        over the trainable tokens of the step, p of the policy that
                                                         sampled
    clip    the share `share` of all tokens, drawn at random among those with cov in [low, high], has no gradient
    kl      the share `share` with the largest cov has the ratio's value and a penalty coef |log r_t| instead of the
            clip

Shapes as in `clip`, whose value all other tokens have ("kl": the ratio without a clip). At least one token is chosen if
any qualifies. The choice is made once for the step (`prepare`), so splitting the batch changes nothing; the published
code chooses within a micro-batch.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from training.learner.reduction import LIMIT, live
from training.rl.policy_loss.clip import clip
from training.types import Batch, Terms, TokenStats

NEEDS = {"chance"}
EXCLUDES = {
    "ratio/sequence": "covariance chooses single tokens, and a sequence ratio gives all tokens of an answer one gradient; use token"
}
ADVANTAGE_ONLY = False  # it has a gradient for zero advantage too


def prepare(
    batch: Batch,
    *,
    mode: Literal["clip", "kl"] = "clip",
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    **_: object,
) -> None:
    """Adds columns["held"] [T] bool. Raises ValueError for a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise ValueError(f"covariance: share is {share}; it is the share of tokens held back, above 0 and at most 1")
    where = batch.trainable.nonzero().squeeze(1)
    logp = torch.nan_to_num(batch.columns["sampling_logp"].index_select(0, where), neginf=-1e4, posinf=0.0)
    advantages = torch.nan_to_num(batch.columns["advantages"].index_select(0, where), neginf=0.0, posinf=0.0)
    held = torch.zeros_like(batch.trainable)
    if len(where):
        cov = (logp - logp.mean()) * (advantages - advantages.mean())
        count = max(1, int(share * len(where)))
        if mode == "clip":
            fits = (cov >= low) & (cov <= high)
            order = torch.where(fits, batch.columns["chance"].index_select(0, where), 2.0).argsort(stable=True)[:count]
            held[where[order[fits[order]]]] = True
        else:
            held[where[cov.argsort(descending=True, stable=True)[:count]]] = True
    batch.add("held", held, "token")


def covariance(
    log_ratio: Tensor,
    advantages: Tensor,
    stats: TokenStats,
    batch: Batch,
    *,
    mode: Literal["clip", "kl"] = "clip",
    share: float = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    coef: float = 1.0,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Terms:
    held = batch.columns["held"].bool()
    if mode == "clip":
        terms = clip(log_ratio, advantages, stats, batch, clip_low=clip_low, clip_high=clip_high)
        terms.values = torch.where(held, terms.values.detach(), terms.values)
        return terms
    log_ratio, advantages = live(log_ratio, batch).clamp(-LIMIT, LIMIT), live(advantages, batch)
    plain = -log_ratio.exp() * advantages
    values = torch.where(held, plain + coef * log_ratio.abs(), plain)
    return Terms(values=values, denominator="tokens", metrics={"held": (held.sum(), batch.trainable.sum())})
