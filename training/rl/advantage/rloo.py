"""Leave-one-out baseline.

Ahmadian et al. 2024, "Back to Basics: Revisiting REINFORCE-Style Optimization for Learning from Human Feedback in LLMs"
(arXiv 2402.14740); Kool et al. 2019, "Buy 4 REINFORCE Samples, Get a Baseline for Free!".

    A_i = r_i - mean of r_j over j != i  =  n / (n - 1) * (r_i - mean(r))

Shapes: one reward per rollout in, one advantage per rollout out. The baseline of a rollout never contains its own reward,
so the gradient stays unbiased. n counts scorable rollouts. Leaves out the KL penalty that the paper folds into the
reward.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def rloo(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    return relative(rewards, lambda r: (r - r.mean()) * len(r) / (len(r) - 1))
