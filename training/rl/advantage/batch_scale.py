"""Rewards centred per group or per batch, divided by the whole batch's standard deviation.

Hu et al. 2025, "REINFORCE++: An Efficient RLHF Algorithm with Robustness to Both Prompt and Reward Models" (arXiv
2501.03262); group mean with batch deviation: Liu et al. 2025, "Part I: Tricks or Traps? A Deep Dive into RL for LLM
Reasoning" (Lite PPO, arXiv 2508.08221).

    centre batch                   A_i = (r_i - mean of the batch) / (std of the batch + eps)             REINFORCE++
    centre group, std centred      A_i = (r_i - mean of its group) / (std of these differences + eps)
                                   REINFORCE++-baseline
    centre group, std rewards      A_i = (r_i - mean of its group) / (std of all rewards + eps)           Lite PPO

Shapes: one reward per rollout in, one advantage per rollout out. The standard deviation of the whole batch avoids huge
advantages in a nearly uniform group. std is the population's, over rollouts. With centre "batch" equal rewards keep
their advantage: a group is compared with the other prompts, and a group of one is enough. Leaves out the KL in the
reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards


def batch_scale(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    centre: Literal["group", "batch"] = "group",
    std: Literal["rewards", "centred"] = "rewards",
    eps: float = 1e-6,
) -> Advantages:
    flat = np.concatenate(rewards) if len(rewards) else np.zeros(0)
    scorable = flat[~np.isnan(flat)]
    if not len(scorable) or scorable.min() == scorable.max():
        return [np.zeros(len(r)) for r in rewards]
    if centre == "batch":
        centred = [np.where(np.isnan(r), 0.0, r - scorable.mean()) for r in rewards]
    else:
        centred = relative(rewards, lambda r: r - r.mean())
    differences = np.concatenate(centred)[~np.isnan(flat)]
    scale = (scorable if std == "rewards" else differences).std() + eps
    return [c / scale for c in centred]
