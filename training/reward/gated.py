"""The score counts only where a condition holds: right, and in the right form.

Xu et al. 2025, "AceSearcher: Bootstrapping Reasoning and Search for LLMs via Reinforced Self-Play" (arXiv 2509.24193):
r = EM(answer) * 1[format valid].

    r <- r * 1[part > least]

`part` is a part of the score, 0 where a score has no such part. Shapes: one reward per rollout in and out; unscorable stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.reward import part as part_of
from training.types import Group, Rewards


def gated(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    part: str = "answered",
    least: float = 0.0,
) -> Rewards:
    return [np.where(np.isnan(r), np.nan, r * (part_of(group, r, part) > least)) for group, r in zip(groups, rewards, strict=True)]
