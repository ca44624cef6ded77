"""Quantile advantage (QAE): a group's K-quantile as its baseline.

"Quantile Advantage Estimation for Entropy-Safe Reasoning", 2025 (arXiv 2509.22611).

    A_i = (r_i - Q_k(r)) / (std(r) + eps),     Q_k = smallest reward with at least a share k of the group at or below it

Shapes: one reward per rollout in, one advantage per rollout out. With right/wrong rewards and a share p right the baseline
is a gate: a hard prompt (p <= 1 - k) gives 1/sqrt(p(1-p)) to its rare successes and exactly 0 to failures, an easy one
-1/sqrt(p(1-p)) to its rare failures and exactly 0 to successes. The quantile must be the inverted CDF: interpolation
gives fractional baselines and destroys the gate. std is the population's. Leaves out nothing of the estimator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def quantile(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    k: float = 0.4,
    eps: float = 1e-8,
) -> Advantages:
    return relative(rewards, lambda r: (r - np.quantile(r, k, method="inverted_cdf")) / (r.std() + eps))
