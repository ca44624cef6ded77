"""Rewards a proposer for problems of the right difficulty: a bell curve over the solver's success rate.

Wang et al. 2025, "Socratic-Zero: Bootstrapping Reasoning via Data-Free Agent Co-evolution" (arXiv 2509.24726): mu 0.5,
sigma 0.2; Yang et al. 2025, "SPELL: Self-Play Reinforcement Learning for evolving Long-Context Language Models" (arXiv
2509.23863): sigma 0.5 / 3, and 0 if all or none succeed.

    r <- exp(-(s - mu)^2 / (2 sigma^2)),   s = the solver's mean success on the proposal, the rollout's score
    r <- 0 if s is 0 or 1 and `extremes` is false

A proposal whose score has a part named in `penalties` gets the corresponding number of `costs` instead.
Shapes: one reward per rollout in and out; NaN (a proposal without a score) stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards


def bell(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    mu: float = 0.5,
    sigma: float = 0.2,
    extremes: bool = True,
    penalties: tuple = ("duplicate", "spec_invalid"),
    costs: tuple = (-0.5, -1.0),
) -> Rewards:
    if sigma <= 0 or len(penalties) != len(costs):
        raise ValueError(
            f"bell: sigma is {sigma}, it must be above 0; and {len(penalties)} penalties need as many costs, not {len(costs)}"
        )
    out = []
    for group, s in zip(groups, rewards, strict=True):
        paid = np.exp(-((s - mu) ** 2) / (2 * sigma**2))
        if not extremes:
            paid = np.where((s <= 0) | (s >= 1), 0.0, paid)
        for name, cost in zip(penalties, costs, strict=True):
            paid = np.where(part(group, s, name) > 0, cost, paid)
        out.append(np.where(np.isnan(s), np.nan, paid))
    return out
