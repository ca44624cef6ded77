"""Weights sampled thoughts by their likelihood given the right answer.

Zhou et al. 2025, "Variational Reasoning for Language Models" (arXiv 2509.22637).

    rho_k = acc_k * exp(mean over tokens of [log pi_0 - log q]),   acc_k = the reward: the accuracy of answers drawn
    after thought k
    A_k = rho_k / sum_j rho_j  (soft),   or 1 for the largest rho of the group and 0 else (argmax; ties share it)

q sampled the thoughts with a hint of the answer, pi_0 is the model without it; the mean log-ratio is the part
`log_ratio` of the score (its geometric mean per token keeps long thoughts comparable). With the policy loss
policy_gradient this is the weighted fine-tuning of the paper. Shapes: one reward per rollout in, one advantage per rollout
out. Equal rewards keep their advantages; a group whose rewards are all 0 gets zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.reward import part
from training.types import Advantages, Group, Rewards

READS = ("log_ratio",)


def trace_posterior(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    select: Literal["argmax", "soft"] = "argmax",
) -> Advantages:
    advantages = []
    for group, r in zip(groups, rewards, strict=True):
        rho = np.nan_to_num(np.maximum(r, 0.0) * np.exp(np.clip(part(group, r, "log_ratio"), -50, 50)))
        if select == "argmax":
            rho = ((rho == rho.max()) & (rho > 0)).astype(np.float64) if len(rho) else rho
        advantages.append(rho / rho.sum() if rho.sum() > 0 else np.zeros(len(rho)))
    return advantages
