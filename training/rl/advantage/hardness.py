"""Harder prompts get more weight; hardness is the policy's own failure rate.

"Confucius3-Math: A Lightweight High-Performance Reasoning LLM for Chinese K-12 Mathematics Learning", 2025
(policy-specific hardness weighting, arXiv 2506.18330). This is our reading, not the paper's own formula: only the
abstract was available.

    A_i = (1 + c (1 - p)) (r_i - mean(r)),       p = mean(r), the group's success rate

Shapes: one reward per rollout in, one advantage per rollout out. The weight falls from 1 + c for a prompt that is never
solved to 1 for one that is always solved. Assumes rewards in [0, 1]. `scale` divides by the group's standard deviation
too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def hardness(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    c: float = 1.0,
    scale: bool = False,
    eps: float = 1e-6,
) -> Advantages:
    return relative(rewards, lambda r: (1 + c * (1 - r.mean())) * (r - r.mean()) / (r.std() + eps if scale else 1.0))
