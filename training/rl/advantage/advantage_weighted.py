"""Imitation weighted by how much better a token did than the critic expected: offline RL from dialogues of any quality.

Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning" (arXiv 2110.06169); for dialogues Snell
et al. 2022 (ILQL, arXiv 2206.11871) and Hong et al. 2023, "Zero-Shot Goal-Directed Dialogue via RL on Imagined
Conversations" (arXiv 2311.05584).

    A_t = gamma^(T - t) r + later rewards of turns - V_t        advantage_t = min(cap, exp(beta A_t))

With the policy loss policy_gradient this is weighted maximum likelihood. Shapes: one reward per rollout in, one advantage
per token out. V_t is extras["value"]; trained with the loss `expectile` it estimates the return of the better
dialogues. Every scored rollout has an advantage above 0: equal rewards keep their advantage. T counts turns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.types import Advantages, Group, Rewards

NEEDS = {"value"}


def advantage_weighted(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    beta: float = 2.0,
    gamma: float = 0.99,
    cap: float = 20.0,
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        advantages.append([])
        for rollout, x in zip(group.rollouts, r, strict=True):
            out = np.zeros(rollout.n_model)
            if not math.isnan(x):
                later = float(x)
                for t, (here, own) in enumerate(reversed(turns(rollout))):
                    later = own + (gamma * later if t else later)
                    out[here] = later
                out = np.minimum(cap, np.exp(np.minimum(beta * (out - rollout.each("value")), np.log(cap))))
            advantages[-1].append(out)
    return advantages
