"""Keeps groups whose mean score lies in a band.

Bae et al. 2025, "Online Difficulty Filtering for Reasoning Oriented Reinforcement Learning" (arXiv 2504.03380).

    keep a group  <=>  low <= mean(r) <= high,  r = its raw scores, before any shaping

Shapes: one verdict per group: None (keep) or a reason: "unscorable" (no score), "too_hard", "too_easy".
With scores in [0, 1] the expected gradient is largest near a mean of 0.5. The caller replaces dropped groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards


def pass_rate_band(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    low: float = 0.1,
    high: float = 0.9,
) -> list[str | None]:
    def reason(r: np.ndarray) -> str | None:
        r = r[~np.isnan(r)]
        if not len(r):
            return "unscorable"
        return "too_hard" if r.mean() < low else "too_easy" if r.mean() > high else None

    return [reason(group.rewards) for group in groups]
