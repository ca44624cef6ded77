"""Risk-sensitive advantage: the gradient of an exponential utility of the reward.

"Risk-Sensitive RL for Alleviating Exploration Dilemmas in Large Language Models", 2025 (RS-GRPO, arXiv 2509.24261).

    J = 1/beta log E[exp(beta r)],        A_i = 1/beta ( exp(beta r_i) / mean_j exp(beta r_j) - 1 )

Shapes: one reward per rollout in, one advantage per rollout out, without division by a standard deviation. beta -> 0
gives r - mean, beta -> infinity the best of the group; beta < 0 seeks safety. The advantages of a group sum to 0. Rare
successes on hard prompts count more, rare failures on easy ones less. Leaves out nothing of the estimator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def risk(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, beta: float = 2.0
) -> Advantages:
    if not beta:
        raise ValueError("risk: beta is 0, where the utility is the mean reward; use the advantage grpo with std none")

    def formula(r: np.ndarray) -> np.ndarray:
        utility = np.exp(beta * r - (beta * r).max())  # any common factor cancels
        return (utility / utility.mean() - 1) / beta

    return relative(rewards, formula)
