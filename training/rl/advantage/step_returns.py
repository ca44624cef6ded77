"""Process rewards that cannot be farmed: clipped so that no step earns a positive reward, or differenced so that steps
do not add up.

Gao et al. 2024, "On Designing Effective RL Reward at Training Time for LLM Reasoning" (arXiv 2410.15115).

    clip     p_t <- min(p_t - eta, 0)                          delta    p_t <- p_t - p_{t+1} for all but the last two,
    then p_t, then 0
    A_it = r_i + alpha sum_{k >= t} p_ik,   minus the group's mean of these values at the first turn

Shapes: one reward per rollout in, one advantage per token out, the same within a turn; p are the rewards of turns. With
raw sums a policy would pad its answer with safe steps; under delta the sum from a turn on is that turn's own reward,
whatever the length. clip_delta clips first. With fewer than two scored rollouts the advantages are 0; equal
rewards keep their advantage if the turns' rewards differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import turns
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)

MIN_GROUP = 2


def step_returns(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 0.02,
    eta: float = 0.5,
    mode: Literal["raw", "clip", "delta", "clip_delta"] = "clip_delta",
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        later = [_sums([p for _, p in turns(rollout)], eta, mode) for rollout in group.rollouts]
        first = [x + alpha * s[0] for x, s in zip(r, later, strict=True) if not math.isnan(x) and len(s)]
        baseline = float(np.mean(first)) if len(first) > 1 else None
        advantages.append([])
        for rollout, x, sums in zip(group.rollouts, r, later, strict=True):
            out = np.zeros(rollout.n_model)
            if not math.isnan(x) and baseline is not None:
                for (here, _), s in zip(turns(rollout), sums, strict=True):
                    out[here] = x + alpha * s - baseline
            advantages[-1].append(out)
    return advantages


def _sums(p: Sequence[float], eta: float, mode: str) -> np.ndarray:
    """The sums [turns] of the shaped rewards from each turn on."""
    shaped = np.array(p, dtype=np.float64)
    if mode in ("clip", "clip_delta"):
        shaped = np.minimum(shaped - eta, 0.0)
    if mode in ("delta", "clip_delta") and len(shaped) > 1:
        shaped = np.append(np.append(shaped[:-2] - shaped[1:-1], shaped[-2]), 0.0)
    return np.cumsum(shaped[::-1])[::-1]
