"""Group-relative advantage whose mean and deviation are those of the policy's own rollouts.

Dong et al. 2025, "RL-PLUS: Countering Capability Boundary Collapse of LLMs in Reinforcement Learning with Hybrid-policy
Optimization" (arXiv 2508.00222), where off_policy solutions join a group.

    A_i = (r_i - mean(own r)) / (std(own r) or 1)              off_policy rollouts: the same, or 0 where off_policy is
    "none"

Shapes: one reward per rollout in, one advantage per rollout out. `std` false leaves the division out. If a
demonstration raised the mean, it would punish every answer of the policy; here it does not. A group with fewer than two
own scores has deviation 1. If the own rewards are equal, the own rollouts get 0, and an off_policy rollout gets the
amount by which it is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.types import Advantages, Group, Rewards


def own_group(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    std: bool = False,
    off_policy: Literal["scaled", "none"] = "scaled",
) -> Advantages:
    advantages = []
    for group, r in zip(groups, rewards, strict=True):
        foreign = np.array([rollout.off_policy for rollout in group.rollouts], dtype=bool)
        own = r[~foreign & ~np.isnan(r)]
        if not len(own):
            advantages.append(np.zeros(len(r)))
            continue
        same = own.min() == own.max()
        scale = own.std() if std and not same else 1.0
        out = np.where(np.isnan(r), 0.0, r - (own[0] if same else own.mean())) / scale
        advantages.append(np.where(foreign, 0.0, out) if off_policy == "none" else out)
    return advantages
