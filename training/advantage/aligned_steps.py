"""Outcome and steps, each compared with the other rollouts at the same place, in a fixed proportion.

"Look Back to Reason Forward: Revisitable Memory for Long-Context LLM Agents", 2025 (ReMemR1, arXiv 2509.23040).

    A_out = (r_i - mean(r)) / (std(r) + eps)          A_step = (s_it - mean_i s_it) / (std_i s_it + eps)    over rollouts that have a turn t
    A_it = alpha A_out + (1 - alpha) A_step

Shapes: one reward per rollout in, one credit per token out, the same within a turn; s are the rewards of turns. Equal rewards keep their credit
where the turns' rewards differ. std is the population's. The step's reward (evidence that the memory gained) is the environment's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.advantage import relative, standard, turns
from training.types import Credit, Group, Rewards

MIN_GROUP = 2


def aligned_steps(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, alpha: float = 0.8, eps: float = 1e-6
) -> Credit:
    credit: list = []
    for group, r, outcome in zip(groups, rewards, relative(rewards, lambda x: standard(x, eps)), strict=True):
        played = [turns(rollout) if x == x else [] for rollout, x in zip(group.rollouts, r, strict=True)]
        credit.append([np.full(rollout.n_model, alpha * a) for rollout, a in zip(group.rollouts, outcome, strict=True)])
        for t in range(max(map(len, played), default=0)):
            here = [i for i, p in enumerate(played) if len(p) > t]
            for i, a in zip(here, standard(np.array([played[i][t][1] for i in here]), eps), strict=True):
                credit[-1][i][played[i][t][0]] += (1 - alpha) * a
    return credit
