"""Policy filtration: within a group only ranks with reliable scores count.

Zhang et al. 2024, "Policy Filtration in RLHF to Fine-Tune LLM for Code Generation" (PF-PPO, arXiv 2409.06957).

    best_worst     rank weights 1 for the best and the worst, 0 between
    best_random    rank weights 0.4 for the best, 0.1 for each other (as published, for five answers)
    w = weights / their sum, shared by rollouts of equal reward;     A_i = n w_i (r_i - sum_j w_j r_j)

Shapes: one reward per rollout in, one advantage per rollout out. Scores of a reward model are right at the extremes and
noisy between.
The paper draws n answers with these weights, with replacement; this is the mean over those draws, without their
variance. Departs: the baseline is the weighted mean of the group, where the paper has a critic. Leaves out choosing the
strategy by R^2, and best-of-N.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def rank_weighted(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    strategy: Literal["best_worst", "best_random"] = "best_worst",
) -> Advantages:
    def formula(r: np.ndarray) -> np.ndarray:
        weights = np.zeros(len(r)) if strategy == "best_worst" else np.full(len(r), 0.1)
        weights[0], weights[-1] = (1.0, 1.0) if strategy == "best_worst" else (0.4, 0.1)
        values, where = np.unique(-r, return_inverse=True)  # ranks from the best down
        order = np.argsort(-r, kind="stable")
        shares = np.bincount(where[order], weights=weights, minlength=len(values)) / np.bincount(where)
        w = shares[where] / weights.sum()
        return len(r) * w * (r - (w * r).sum())

    return relative(rewards, formula)
