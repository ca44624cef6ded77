"""Keeps groups whose rewards differ (dynamic sampling).

Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale" (arXiv 2503.14476), section 3.2.

    keep a group  <=>  max(r) - min(r) > tolerance,  r = its raw scores, before any shaping

Shapes: one verdict per group: None (keep) or a reason: "unscorable" (fewer than two scores), "all_equal".
A group of equal rewards has zero group-relative advantage: it only dilutes the batch. The caller replaces dropped
groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards

MIN_GROUP = 2


def spread(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, tolerance: float = 0.0
) -> list[str | None]:
    def reason(r: np.ndarray) -> str | None:
        r = r[~np.isnan(r)]
        if len(r) < 2:
            return "unscorable"
        return "all_equal" if r.max() - r.min() <= tolerance else None

    return [reason(group.rewards) for group in groups]
