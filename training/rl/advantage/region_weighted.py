"""Tokens weighted by their function: structure first, reasoning later.

"ResT: Reshaping Token-Level Policy Gradients for Tool-Use Large Language Models", 2025 (arXiv 2509.21826).

    weight at step s:  tags 1      tool's name 1.2      its arguments min(0.6 + 0.002 s, 1.2)      working min(0.6 +
    0.002 s, 1)      else 0
    clipped to [0.001, 8] where above 0, and divided by their mean over all such tokens of the step;       A_t =
    weight_t A, A GRPO's

Shapes: one reward per rollout in, one advantage per token out. The part of a token is extras["region"] (the observation
"regions"): 1 a tag, 2 reasoning, 3 the name of a tool, 4 its arguments, 0 anything else. Structural tokens have low
entropy and decide whether a tool runs at all. `state["step"]` counts calls. In our protocol a tool's name is its tag,
so region 3 does not occur.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage.grpo import grpo
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2
NEEDS = {"regions"}


def region_weighted(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    tags: float = 1.0,
    name: float = 1.2,
    start: float = 0.6,
    rise: float = 0.002,
    arguments_max: float = 1.2,
    working_max: float = 1.0,
) -> Advantages:
    step = state.get("step", 0)
    state["step"] = step + 1
    grown = start + rise * step
    table = np.array([0.0, tags, min(grown, working_max), name, min(grown, arguments_max)])
    table = np.where(table > 0, np.clip(table, 0.001, 8.0), 0.0)
    weights = [[table[rollout.each("region").astype(int)] for rollout in group.rollouts] for group in groups]
    counted = [
        w[w > 0]
        for group, r in zip(weights, rewards, strict=True)
        for w, x in zip(group, r, strict=True)
        if not math.isnan(x)
    ]
    flat = np.concatenate([np.zeros(0), *counted])
    mean = flat.mean() if len(flat) else 1.0
    usual = grpo(groups, rewards, state, rng)
    return [
        [a * w / mean for a, w in zip(group_advantages, group, strict=True)]
        for group_advantages, group in zip(usual, weights, strict=True)
    ]
