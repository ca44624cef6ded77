"""Positive and negative reinforcement with separate weights (PSR, NSR, Weighted-REINFORCE).

Zhu et al. 2025, "The Surprising Effectiveness of Negative Reinforcement in LLM Reasoning" (arXiv 2506.01347).

    A_i = lambda_pos  where r_i > threshold,    -lambda_neg  otherwise

(1, 0) is PSR, (0, 1) NSR, (0.1, 1) the paper's Weighted-REINFORCE. Shapes: one reward per rollout in, one advantage per
rollout out. There is no baseline and no scale: equal rewards keep their advantages, and a group of one is enough.
Assumes right/wrong rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards


def signed(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    lambda_pos: float = 0.1,
    lambda_neg: float = 1.0,
    threshold: float = 0.5,
) -> Advantages:
    return [np.where(np.isnan(r), 0.0, np.where(r > threshold, lambda_pos, -lambda_neg)) for r in rewards]
