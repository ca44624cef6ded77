"""Advantages of turns by their contribution: an estimator whose contributions add up to the outcome, or the centred
outcome itself.

Wang et al. 2025, "SPA-RL: Reinforcing LLM Agents via Stepwise Progress Attribution" (arXiv 2505.20732).

    estimator      c_t = the critic's value at token t, learned with value_loss progress: sum_t c_t = r
    loo_outcome    c_t = (r_i - mean of the other rollouts' r) / tokens of the rollout
    A_t = sum over the tokens from t on of (alpha c) + beta times the rewards of the turns from t on

Shapes: one reward per rollout in, one advantage per token out. Rewards of turns are the grounding signal: the action
could be carried out. In one place the released script uses loo_outcome where the paper has the estimator; the two
differ. Equal rewards keep their advantages under the estimator, and if turns are rewarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import relative
from training.rl.advantage.gae import rewards_of
from training.types import Advantages, Group, Rewards

NEEDS = {"value"}


def progress(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 1.0,
    beta: float = 0.5,
    mode: Literal["estimator", "loo_outcome"] = "estimator",
) -> Advantages:
    others = relative(rewards, lambda r: (len(r) * r - r.sum()) / (len(r) - 1))
    advantages: list = []
    for group, r, left_out in zip(groups, rewards, others, strict=True):
        advantages.append([])
        for rollout, x, o in zip(group.rollouts, r, left_out, strict=True):
            n = rollout.n_model
            c = rollout.each("value") if mode == "estimator" else np.full(n, o / max(n, 1))
            sums = np.cumsum((alpha * c + beta * rewards_of(rollout, 0.0))[::-1])[::-1]
            advantages[-1].append(sums if not math.isnan(x) else np.zeros(n))
    return advantages
