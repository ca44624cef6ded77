"""Generalised advantage estimation from a critic's values.

Schulman et al. 2015, "High-Dimensional Continuous Control Using Generalized Advantage Estimation" (arXiv 1506.02438); a
lambda that grows with the answer: Yue et al. 2025, "VAPO" (arXiv 2504.05118).

    delta_t = r_t + gamma V_{t+1} - V_t          A_t = delta_t + gamma lambda A_{t+1}          lambda = 1 - 1 /
    (length_alpha l)

Shapes: one reward per rollout in (on the last token; the rewards of turns are on the last tokens of the turns), one
advantage per token out. V_t is extras["value"], the critic's value before token t; after the last it is 0.
`length_alpha` 0 keeps `lam` for every length l. `whiten`: advantages minus their mean, divided by their standard
deviation, over all tokens of the step. With a critic no group is needed, and equal rewards keep their advantages.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards, Rollout

NEEDS = {"value"}


def gae(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    length_alpha: float = 0.0,
    whiten: bool = True,
) -> Advantages:
    advantages: list[list[np.ndarray]] = []
    for group, r in zip(groups, rewards, strict=True):
        advantages.append([])
        for rollout, x in zip(group.rollouts, r, strict=True):
            n = rollout.n_model
            own = max(0.0, 1 - 1 / (length_alpha * max(n, 1))) if length_alpha else lam
            advantages[-1].append(
                np.zeros(n) if np.isnan(x) else lambda_sums(rewards_of(rollout, x), rollout.each("value"), gamma, own)
            )
    flat = np.concatenate(
        [
            np.zeros(0),
            *(c for c, x in zip(sum(advantages, []), np.concatenate([*rewards]), strict=True) if not np.isnan(x)),
        ]
    )
    if not whiten or not len(flat) or flat.std() == 0:
        return advantages
    return [
        [c if np.isnan(x) else (c - flat.mean()) / (flat.std() + 1e-8) for c, x in zip(cs, r, strict=True)]
        for cs, r in zip(advantages, rewards, strict=True)
    ]


def lambda_sums(reward: np.ndarray, value: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """[n] A_t of rewards [n] and values [n]; A_t + V_t is the lambda-return on which a critic is trained."""
    out = np.zeros(len(reward))
    ahead, later = 0.0, 0.0
    for t in range(len(reward) - 1, -1, -1):
        ahead = reward[t] + gamma * later - value[t] + gamma * lam * ahead
        out[t], later = ahead, value[t]
    return out


def rewards_of(rollout: Rollout, final: float) -> np.ndarray:
    """The reward of each token [n_model]: a turn's reward on the last token of the turn, the episode's on the very last
    token."""
    turns = [s for s in rollout.segments if s.role == "model" and len(s.ids)]
    out = np.zeros(rollout.n_model)
    if len(out):
        out[np.cumsum([len(s.ids) for s in turns]) - 1] = [s.reward or 0.0 for s in turns]
        out[-1] += final
    return out
