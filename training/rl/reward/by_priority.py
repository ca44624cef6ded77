"""Rewards in order of priority: a lower one counts only if the next higher one is earned.

"Stabilizing Long-term Multi-turn Reinforcement Learning with Gated Rewards", 2025 (G-RA, arXiv 2508.10548).

    R = r_outcome + 1[r_outcome > delta] ( sum of levels, each only if the one before it exceeds `level_delta`, then
    weight sum_t r_t )

Shapes: one reward per rollout in and out; unscorable stays NaN. `levels` are parts of the scores, the highest first;
r_t are the rewards of turns. So an agent cannot collect rewards along the way in an episode that fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{levels}", "turn_reward")


def by_priority(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    delta: float = 0.0,
    levels: tuple = (),
    level_delta: float = 0.0,
    weight: float = 0.1,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        total, earned = np.array(r, dtype=np.float64), np.nan_to_num(r) > delta
        for name in levels:
            x = part(group, r, name)
            total = np.where(earned, total + x, total)
            earned &= np.nan_to_num(x) > level_delta
        steps = np.array([sum(s.reward or 0.0 for s in rollout.segments) for rollout in group.rollouts])
        out.append(np.where(earned, total + weight * steps, total))
    return out
