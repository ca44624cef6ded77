"""Pareto alignment: the combination of several advantages with the least norm.

"Pareto Multi-Objective Alignment for Language Models", 2025 (PAMA, arXiv 2508.07768).

    A_ki = x_ki - mean(x_k) within the group, at least 0 where `noon`
    s_i  = argmin over the interval [min_k A_ki, max_k A_ki] of s^2:   0 if it contains 0, else its end nearest to 0

Shapes: one reward per rollout in, one advantage s_i per rollout out. x_k are the `parts` of the scores ("value": the
reward). The least convex combination of the objectives' gradients is bounded by this scalar problem, solved in closed
form in O(K): if objectives disagree, the advantage is 0. With `noon` (no negative advantages) an objective that is not
above its mean stops the update of a rollout. Departs: the baseline is the group's mean, where the paper has a critic
per objective.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.rl.reward import part
from training.types import Advantages, Group, Rewards

READS = ("{parts}",)

MIN_GROUP = 2


def pama(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("value", "answered"),
    noon: bool = True,
) -> Advantages:
    per_part = [
        relative([part(group, r, name) for group, r in zip(groups, rewards, strict=True)], lambda x: x - x.mean())
        for name in parts
    ]
    advantages = []
    for each in zip(*per_part, strict=True):
        a = np.stack(each)
        a = np.maximum(a, 0.0) if noon else a
        low, high = a.min(axis=0), a.max(axis=0)
        advantages.append(np.where(low > 0, low, np.where(high < 0, high, 0.0)))
    return advantages
