"""Pass@k as the reward, by counting over all sets of k answers.

Chen et al. 2025, "Pass@k Training for Adaptively Balancing Exploration and Exploitation of Large Reasoning Models"
(arXiv 2508.10751), analytical derivation.

    n answers, m of them wrong;  C = binomial coefficient;  R = 1 - C(m, k) / C(n, k),   s = sqrt(R (1 - R))
    right   A = (1 - R) / s                    wrong   A = (1 - R - C(m - 1, k - 1) / C(n - 1, k - 1)) / s

Shapes: one reward per rollout in, one advantage per rollout out. A set of k answers has reward 1 if one is right; an
answer's advantage is the mean, over the sets it is in, of the set's standardised reward. If m < k, every set is right
and the advantage is 0: easy prompts give no gradient. An answer is right if its reward exceeds `threshold`. A group
smaller than k uses all its answers as one set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def pass_at_k(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    k: int = 4,
    threshold: float = 0.5,
) -> Advantages:
    if k < 1:
        raise ValueError(f"pass_at_k: k is {k}; it is the number of answers of which one must be right, at least 1")

    def formula(r: np.ndarray) -> np.ndarray:
        right = r > threshold
        n, m = len(r), int((~right).sum())
        size = min(k, n)
        mean = 1 - math.comb(m, size) / math.comb(n, size)
        spread = math.sqrt(mean * (1 - mean))
        if not spread:
            return np.zeros(n)
        wrong = 1 - mean - math.comb(m - 1, size - 1) / math.comb(n - 1, size - 1)
        return np.where(right, 1 - mean, wrong) / spread

    return relative(rewards, formula)
