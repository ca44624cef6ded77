"""Rewards of turns, standardised over all turns of the group.

"WebGen-Agent: Enhancing Interactive Website Generation with Multi-Level Feedback and Step-Level Reinforcement
Learning", 2025 (Step-GRPO, arXiv 2509.22644).

    A_it = (r_it - mean) / (std + eps)         over the turns of all rollouts of the group

Shapes: one reward per rollout in (added to that of the last turn if `outcome`), one advantage per token out, the
same within a turn. A turn is judged by its own reward alone: returns are not summed, so a good step of a failed episode
still counts as good. With equal rewards the advantages are nonzero if the turns' own rewards differ. std is the
population's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)

MIN_GROUP = 2


def step_group(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    outcome: bool = False,
    eps: float = 1e-6,
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        played = [turns(rollout) if not math.isnan(x) else [] for rollout, x in zip(group.rollouts, r, strict=True)]
        values = [
            [y + (x if outcome and t == len(p) - 1 else 0.0) for t, (_, y) in enumerate(p)]
            for p, x in zip(played, r, strict=True)
        ]
        scaled = iter(standard(np.array([y for v in values for y in v]), eps))
        advantages.append([np.zeros(rollout.n_model) for rollout in group.rollouts])
        for out, p in zip(advantages[-1], played, strict=True):
            for here, _ in p:
                out[here] = next(scaled)
    return advantages
