"""Conditional advantage: each half of a group, split by entropy or length, against the other half or against itself.

"Conditional Advantage Estimation for Reinforcement Learning in Large Reasoning Models", 2025 (CANON, arXiv 2509.23962).

    sort a group by the metric; low = its first half (G // 2), high = the rest; m_low, m_high = mean rewards; w = inter
    high   A_i = w (alpha r_i - m_low + beta) + (1 - w) (r_i - m_high)
    low    A_i = w (r_i - alpha m_high - beta) + (1 - w) (r_i - m_low)

Shapes: one reward per rollout in, one advantage per rollout out. w = 1 asks which half is better, w = 0 which answer is
better within its half; w = 1/2 is the reward minus the group's mean (for halves of equal size). alpha > 1 or beta > 0
favours the high half. Rollouts that tie at the cut belong to both halves proportionally, so that their order does not
matter. Metric "entropy": mean over the tokens as they were sampled. Leaves out the schedules of w, and the division by
a constant length, which belongs to the policy loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.types import Advantages, Group, Rewards, Rollout

MIN_GROUP = 2


def canon(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    metric: Literal["entropy", "length"] = "entropy",
    inter: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Advantages:
    advantages = []
    for group, all_rewards in zip(groups, rewards, strict=True):
        out = np.zeros(len(all_rewards))
        ok = ~np.isnan(all_rewards)
        r = all_rewards[ok]
        if len(r) >= 2 and (r.min() < r.max() or alpha != 1 or beta):
            x = np.array([_metric(rollout, metric) for rollout, use in zip(group.rollouts, ok, strict=True) if use])
            high = _share_above(x, len(r) - len(r) // 2)
            m_low, m_high = np.average(r, weights=1 - high), np.average(r, weights=high)
            as_high = inter * (alpha * r - m_low + beta) + (1 - inter) * (r - m_high)
            as_low = inter * (r - alpha * m_high - beta) + (1 - inter) * (r - m_low)
            out[ok] = high * as_high + (1 - high) * as_low
        advantages.append(out)
    return advantages


def _metric(rollout: Rollout, metric: str) -> float:
    if metric == "length":
        return float(rollout.n_model)
    turns = [s.entropy for s in rollout.segments if s.role == "model"]
    written = [e for e in turns if e is not None]
    if len(written) < len(turns):
        raise ValueError(
            "canon with metric entropy needs entropies of the sampled tokens, and the sampler kept none; use metric length"
        )
    return float(np.concatenate(written).mean(dtype=np.float64)) if written else 0.0


def _share_above(x: np.ndarray, count: int) -> np.ndarray:
    """Membership [n] in [0, 1] of the `count` largest values of x; ties share the remaining places."""
    cut = np.sort(x)[len(x) - count]
    tied = x == cut
    return np.where(tied, (count - (x > cut).sum()) / tied.sum(), (x > cut).astype(np.float64))
