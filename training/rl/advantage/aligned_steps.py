"""Outcome and steps, each compared with the other rollouts at the same turn, mixed in a fixed proportion.

"Look Back to Reason Forward: Revisitable Memory for Long-Context LLM Agents", 2025 (ReMemR1, arXiv 2509.23040).

    A_out = (r_i - mean(r)) / (std(r) + eps)          A_step = (s_it - mean_i s_it) / (std_i s_it + eps)    over
    rollouts that have a turn t A_it = alpha A_out + (1 - alpha) A_step

Shapes: one reward per rollout in, one advantage per token out, the same within a turn; s are the rewards of turns. With
equal rewards the advantages are nonzero if the turns' rewards differ. std is the population's. The environment gives
the step's reward (evidence that the memory gained).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative, turns
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)

MIN_GROUP = 2


def aligned_steps(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 0.8,
    eps: float = 1e-6,
) -> Advantages:
    advantages: list = []
    for group, r, outcome in zip(groups, rewards, relative(rewards, lambda x: standard(x, eps)), strict=True):
        played = [turns(rollout) if not math.isnan(x) else [] for rollout, x in zip(group.rollouts, r, strict=True)]
        advantages.append(
            [np.full(rollout.n_model, alpha * a) for rollout, a in zip(group.rollouts, outcome, strict=True)]
        )
        for t in range(max(map(len, played), default=0)):
            here = [i for i, p in enumerate(played) if len(p) > t]
            for i, a in zip(here, standard(np.array([played[i][t][1] for i in here]), eps), strict=True):
                advantages[-1][i][played[i][t][0]] += (1 - alpha) * a
    return advantages
