"""Several rewards, each normalised within its group before they are added.

Liu et al. 2026, "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization"
(arXiv 2601.05242).

    z_ki = (x_ki - mean(x_k)) / (std(x_k) + eps)      within the group, for each reward k
    A = sum_k w_k z_k, then minus its mean and divided by its standard deviation over the batch

Shapes: one reward per rollout in, one advantage per rollout out. x_k are the `parts` of the scores ("value": the reward),
w_k the `weights` (default 1 each). Adding first, as GRPO does, gives the same advantage to different combinations of
rewards; here they stay distinct. A reward that is constant in a group adds 0 there. Leaves out rewards that count only
if another is satisfied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.rl.reward import part
from training.types import Advantages, Group, Rewards

READS = ("{parts}",)

MIN_GROUP = 2


def gdpo(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("value", "answered"),
    weights: tuple = (),
    eps: float = 1e-6,
) -> Advantages:
    if weights and len(weights) != len(parts):
        raise ValueError(f"gdpo: {len(weights)} weights for {len(parts)} parts; give one per part, or none")
    total = [np.zeros(len(r)) for r in rewards]
    for name, weight in zip(parts, weights or (1.0,) * len(parts), strict=True):
        values = [part(group, r, name) for group, r in zip(groups, rewards, strict=True)]
        for out, z in zip(total, relative(values, lambda x: (x - x.mean()) / (x.std(ddof=1) + eps)), strict=True):
            out += weight * z
    flat = np.concatenate([t[~np.isnan(r)] for t, r in zip(total, rewards, strict=True)]) if total else np.zeros(0)
    if not flat.any():
        return total
    return [
        np.where(np.isnan(r), 0.0, (t - flat.mean()) / (flat.std() + eps)) for t, r in zip(total, rewards, strict=True)
    ]
