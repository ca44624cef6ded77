"""The reward of a turn is the advantage of its tokens, as it is: for group transforms that compute advantages themselves.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning".

    A_t = p_k        for the tokens t of turn k, of which p are the rewards

Shapes: one reward per rollout in (read only where it is NaN), one advantage per token out, the same within a turn. Equal rewards keep
their advantage where the turns' rewards are not 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)


def step_reward(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        advantages.append([])
        for rollout, x in zip(group.rollouts, r, strict=True):
            out = np.zeros(rollout.n_model)
            for here, p in turns(rollout):
                out[here] = 0.0 if math.isnan(x) else p
            advantages[-1].append(out)
    return advantages
