"""Optimal baseline for exact on-policy training.

Hao et al. 2025, "On-Policy RL with Optimal Reward Baseline" (OPO, arXiv 2505.23585).

    A_i = r_i - sum_j l_j r_j / sum_j l_j,     l_j = tokens that the model wrote in rollout j

Shapes: one reward per rollout in, one advantage per rollout out. The baseline of least gradient variance weights each
reward by the squared norm of its score function; assuming that this norm grows with the number of tokens gives this
baseline. Assumes on-policy data. Leaves out nothing of the estimator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def opo(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    advantages = []
    for group, r in zip(groups, rewards, strict=True):
        out = np.zeros(len(r))
        ok = ~np.isnan(r)
        if ok.sum() >= 2 and r[ok].min() < r[ok].max():
            lengths = np.array([rollout.n_model for rollout in group.rollouts], dtype=np.float64)[ok]
            out[ok] = r[ok] - (lengths * r[ok]).sum() / max(1.0, lengths.sum())
        advantages.append(out)
    return advantages
