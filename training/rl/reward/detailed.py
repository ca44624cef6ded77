"""Parts of an answer that are right earn a part of the reward, and hard problems weigh more.

RewardMap, "Tackling Sparse Rewards in Fine-grained Visual Reasoning via Multi-Stage Reinforcement Learning", 2025. The form
of the sum is known; the constants are our reading.

    R = W (form f + x + alpha D)
    D   mean over the parts of p - penalty (1 - p); 0 for an answer without details
    W   weights[lines drawn - 2], the last one beyond, times 1 + change * changes wanted

x is the reward so far, f the part `answered`, p the parts named in `parts`, each from 0 to 1. Shapes: one reward per rollout
in and out; unscorable stays NaN. An answer that is wholly right has the most: D is 1 where all parts are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{parts}", "answered", "detailed", "drawn", "wanted_changes")


def detailed(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("origin", "destination", "lines", "changes", "legs"),
    alpha: float = 0.5,
    penalty: float = 0.05,
    form: float = 0.1,
    weights: tuple = (1.0, 1.2, 1.5),
    change: float = 0.2,
) -> Rewards:
    if not parts or not weights:
        raise ValueError("detailed: name at least one part, and one weight for maps of two lines")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        details = np.mean([part(group, r, name) for name in parts], axis=0)
        details = np.where(part(group, r, "detailed") > 0, details - penalty * (1 - details), 0.0)
        level = np.nan_to_num(part(group, r, "drawn") - 2).clip(0, len(weights) - 1).astype(int)
        weight = np.asarray(weights, dtype=np.float64)[level] * (1 + change * part(group, r, "wanted_changes"))
        out.append(weight * (form * part(group, r, "answered") + r + alpha * details))
    return out
