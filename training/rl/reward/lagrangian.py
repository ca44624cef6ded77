"""Several rewards with learned multipliers; each has a point beyond which more of it counts less.

Moskovitz et al. 2023, "Confronting Reward Model Overoptimization with Constrained RLHF" (arXiv 2310.04373).

    R = sum_k m_k x_k,     m_k = sigmoid(u_k) ("mu": at least 0), or tanh(u_k) ("xi": negative beyond the point)
    u_k <- u_k + lr (point_k - mean x_k)      after use

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. x_k are `parts` of the scores; `state["u"]`
holds the multipliers. A part below its point gains weight, one above it loses weight. Leaves out one critic per reward,
the multiplier of the KL, and the search for the points.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{parts}",)


def lagrangian(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("value", "answered"),
    points: tuple = (0.6, 0.6),
    variant: Literal["mu", "xi"] = "xi",
    lr: float = 0.1,
) -> Rewards:
    if len(parts) != len(points):
        raise ValueError(f"lagrangian: {len(points)} points for {len(parts)} parts; give one per part")
    u = state.setdefault("u", [0.0] * len(parts))
    m = [1 / (1 + np.exp(-x)) if variant == "mu" else float(np.tanh(x)) for x in u]
    values = [[part(group, r, name) for group, r in zip(groups, rewards, strict=True)] for name in parts]
    out = [
        sum((w * v[g] for w, v in zip(m, values, strict=True)), np.zeros(len(rewards[g]))) for g in range(len(groups))
    ]
    means = [np.concatenate(v) if v else np.zeros(0) for v in values]
    state["u"] = [
        float(x + lr * (point - np.nanmean(v))) if (~np.isnan(v)).any() else float(x)
        for x, point, v in zip(u, points, means, strict=True)
    ]
    return out
