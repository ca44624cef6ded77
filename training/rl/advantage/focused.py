"""Tokens have more weight at positions where the rollouts of a group disagree about the next token.

Dang et al. 2025, "Reinforcing Video Reasoning with Focused Thinking" (TW-GRPO, arXiv 2505.24718).

    D_t = mean over the rollouts alive at t of KL(p_it || mean_j p_jt),   scaled to [0, 1] over the positions of the
    group A_it = (1 + alpha D_t) A_i, A GRPO's

Shapes: one reward per rollout in, one advantage per token out. D_t is extras["divergence"] (the observation "divergence", already
scaled), the same for all rollouts at one position: a prefix that all share has weight 1, the position with the most
disagreement 1 + alpha. The formula is recalled, not confirmed. Leaves out the rewards for questions with several right
answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage.grpo import grpo
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2
NEEDS = {"divergence"}


def focused(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, alpha: float = 1.0
) -> Advantages:
    return [
        [
            a * (1 + alpha * rollout.each("divergence"))
            for a, rollout in zip(group_advantages, group.rollouts, strict=True)
        ]
        for group_advantages, group in zip(grpo(groups, rewards, state, rng), groups, strict=True)
    ]
