"""Maximum likelihood reinforcement learning: the group's mean as the scale.

Tajwar et al. 2026, "Maximum Likelihood Reinforcement Learning" (arXiv 2602.02710).

    A_i = (r_i - mean(r)) / mean(r)            0 where mean(r) is not above 0

Shapes: one reward per rollout in, one advantage per rollout out. With right/wrong rewards it is the gradient of log
p(right) where p is the success rate, truncated after the first n - 1 terms of its series in 1 - p, because the group's
own mean is the baseline: a success among n - 1 failures gets n - 1, a failure always -1. Where GRPO divides by sqrt(p
(1 - p)), this divides by p: hard prompts count more, easy ones less. Assumes rewards of at least 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def max_rl(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    return relative(rewards, lambda r: (r - r.mean()) / r.mean() if r.mean() > 0 else np.zeros(len(r)))
