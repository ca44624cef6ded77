"""Trajectory balance: answers in proportion to their reward, so that all good answers stay likely, not only the best.

Bengio et al. 2021, "GFlowNet Foundations" (arXiv 2111.09266), for red-teaming in Yun et al. 2025, "Active Attacks:
Red-teaming LLMs via Adaptive Environments" (arXiv 2509.21947); log Z estimated by the group as in VarGrad (Richter et
al. 2020, arXiv 2010.10436).

    loss_i = (log Z + log pi(y_i) - r_i / beta)^2,   log Z = mean over the group of r / beta - log pi
    A_i = 2 ((r_i / beta - log pi(y_i)) - mean over the group of it)

With the policy loss policy_gradient, on-policy, -A_i log pi has the gradient of loss_i. Shapes: one reward per rollout
in, one advantage per rollout out; log pi is the sum of the sampled tokens' log-probs. Departs: log p_ref / gamma of the
paper's log reward is left to the KL regulariser. Equal rewards keep nonzero advantages if the answers are not equally
likely, as intended. A group with fewer than two scored rollouts gets 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def trajectory_balance(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, beta: float = 0.1
) -> Advantages:
    if beta <= 0:
        raise ValueError(f"trajectory_balance: beta is {beta}; the temperature of the reward must be above 0")
    advantages = []
    for group, r in zip(groups, rewards, strict=True):
        sampling_logp = np.array(
            [sum(float(s.logp.sum()) for s in rollout.segments if s.logp is not None) for rollout in group.rollouts]
        )
        target = r / beta - sampling_logp
        known = ~np.isnan(target)
        out = np.zeros(len(r))
        if known.sum() >= 2:
            out[known] = 2 * (target[known] - target[known].mean())
        advantages.append(out)
    return advantages
