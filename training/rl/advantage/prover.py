"""Outcome and progress: how much a token raises the chance of success of a prover, which is another policy.

Setlur et al. 2024, "Rewarding Progress: Scaling Automated Process Verifiers for LLM Reasoning" (PAV, arXiv 2410.08146).

    Q(s) = 1 - (1 - V(s))^k, the prover being the best of k of the base policy, V kept in [0, 1]
    A_t = (r - mean(r) of the group) + alpha (Q(after t) - Q(before t))

Shapes: one reward per rollout in, one advantage per token out. V is extras["value"]: the critic's chance of success
before each token; after the last token it is the reward. A very strong or very weak prover shows no progress. Leaves
out fitting the critic to completions by the prover: it learns the policy's own. Equal rewards keep their advantage,
because progress differs along the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2
NEEDS = {"value"}


def prover(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, alpha: float = 3.0, k: int = 4
) -> Advantages:
    if k < 1:
        raise ValueError(f"prover: k is {k}; the prover is the best of k answers, at least 1")
    advantages: list = []
    for group, r, outcome in zip(groups, rewards, relative(rewards, lambda x: x - x.mean()), strict=True):
        advantages.append([])
        for rollout, x, a in zip(group.rollouts, r, outcome, strict=True):
            if np.isnan(x):
                advantages[-1].append(np.zeros(rollout.n_model))
                continue
            chance = np.clip(np.append(rollout.each("value"), x), 0.0, 1.0)
            advantages[-1].append(a + alpha * np.diff(1 - (1 - chance) ** k))
    return advantages
