"""Learns when to reason first, in three stages: balance the two modes, reward the right choice, penalise length.

Tu et al. 2025, "Learning When to Think: Shaping Adaptive Reasoning in R1-Style Models via Multi-Stage RL" (AutoThink,
arXiv 2505.10832).

    base        thinking: right 1, wrong 0            not thinking: right 2, wrong -1
    stage 1     (1 - d) base + d penalty;  z = share of thinking, d = clip((z - gamma) lam, 0, 1) for thinking, of 1 - z
                for not thinking
                penalty: right 0, wrong -1 (thinking) or -2 (not)
    stage 3     y = (tokens - mean) / std of the group:   right base - 1 + exp(-a y),  wrong base + 1 - exp(-b y)

Shapes: one reward per rollout in and out; unscorable stays NaN. A rollout thinks if the part `part` of its score is 1;
it is right where its reward exceeds 1/2. Stages end after `first` and `second` calls, `state["step"]` counts them.
Numbers are from memory of the paper.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part as part_of
from training.rl.standard import standard
from training.types import Group, Rewards

READS = ("{part}",)


def when_to_think(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    gamma: float = 0.5,
    lam: float = 2.0,
    a: float = 0.05,
    b: float = 0.05,
    first: int = 50,
    second: int = 100,
    part: str = "think",
) -> Rewards:
    step = state.get("step", 0)
    state["step"] = step + 1
    thinks = [part_of(group, r, part) > 0.5 for group, r in zip(groups, rewards, strict=True)]
    known = [t[~np.isnan(r)] for t, r in zip(thinks, rewards, strict=True)]
    z = float(np.mean(np.concatenate(known))) if sum(map(len, known)) else gamma
    out = []
    for group, r, think in zip(groups, rewards, thinks, strict=True):
        right = np.nan_to_num(r) > 0.5
        base = np.where(think, np.where(right, 1.0, 0.0), np.where(right, 2.0, -1.0))
        if step < first:
            d = np.clip(np.where(think, z - gamma, 1 - z - gamma) * lam, 0.0, 1.0)
            base = (1 - d) * base + d * np.where(right, 0.0, np.where(think, -1.0, -2.0))
        elif step >= second:
            y = np.clip(standard(np.array([float(x.n_model) for x in group.rollouts])), -10, 10)
            base = np.where(right, base - 1 + np.exp(-a * y), base + 1 - np.exp(-b * y))
        out.append(np.where(np.isnan(r), np.nan, base))
    return out
