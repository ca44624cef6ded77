"""Returns on two levels, for writing programs and then testing them: the outcome for every token, and for each turn its
contribution.

Jin et al. 2025, "ReVeal: Self-Evolving Code Agents via Iterative Generation-Verification" (TAPO, arXiv 2506.11442).

    odd turns write, even turns test; p_t is the reward that the environment gave turn t
    turn return of a writing turn: p_t           of a testing turn: p_t + p_{t+1}, the second being the gain of the next
    writing turn
    A_t = (r - mean over the group of r) + weight * turn return,   the same for all tokens of a turn

Shapes: one reward per rollout in, one advantage per token out. A test is rewarded for being valid and for the
improvement it led to, never for being passed, so easy tests earn nothing extra. Departs: uses the group's mean where
the paper has a critic. Equal rewards keep nonzero advantages if turns have rewards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative, turns
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)


def tapo(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, weight: float = 1.0
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        (compared,) = relative([r], lambda x: x - x.mean())
        advantages.append([])
        for rollout, x, better in zip(group.rollouts, r, compared, strict=True):
            out = np.zeros(rollout.n_model)
            if not math.isnan(x):
                spoken = turns(rollout)
                for t, (here, p) in enumerate(spoken):
                    after = spoken[t + 1][1] if t % 2 and t + 1 < len(spoken) else 0.0
                    out[here] = better + weight * (p + after)
            advantages[-1].append(out)
    return advantages
