"""Pays a numeric estimate by its relative error, and every other answer as its verifier does.

"M2-Reasoning: Empowering MLLMs with Unified General and Spatial Reasoning", 2025, read from the
abstract, so the constants are our reading.

    estimate    R = exp(-decay |s - y| / (|y| + eps)), 0 where that is below `least`; 0 for a turn without a number
    else        R = x, the reward so far
    both        + form where the answer can be read (the part `parsed`)

s and y are the parts `rating` and `wanted` (the verifier `rating`, which gives `rated`). A group is one of estimates if
any of its turns has been rated. Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("rating", "wanted", "rated")
EPS = 1e-6


def relative_error(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    decay: float = 1.0,
    least: float = 0.05,
    form: float = 0.1,
) -> Rewards:
    if decay <= 0:
        raise ValueError(f"relative_error: decay is {decay}: it is how fast the pay falls with the error, above 0")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        rated = part(group, r, "rated") > 0
        wanted = part(group, r, "wanted")
        near = np.exp(-decay * np.abs(part(group, r, "rating") - wanted) / (np.abs(wanted) + EPS))
        paid = np.where(rated & (near >= least), near, 0.0) if rated.any() else r
        out.append(np.where(np.isnan(r), np.nan, paid + form * part(group, r, "parsed")))
    return out
