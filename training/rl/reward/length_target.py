"""Adds a triangular bonus around a target length to the reward.

"Reinforcement Mid-Training", 2025 (RMT, arXiv 2509.24375).

    R = r + weight t(l),       t = 1 where l <= B, 2 - l / B above, at least 0;      "peak": below B it is l / B

Shapes: one reward per rollout in and out; unscorable stays NaN. l is the tokens that the model wrote, B is `target`,
or, if that is 0, half of the last turn's token limit, so that the target shrinks with a shrinking turn budget. Which of
the two shapes below B is meant is not confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.types import Group, Rewards, Rollout


def length_target(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    weight: float = 0.2,
    target: int = 0,
    below: Literal["flat", "peak"] = "flat",
) -> Rewards:
    def shape(rollout: Rollout) -> float:
        allowed = next(
            (s.sampling.max_tokens for s in reversed(rollout.segments) if s.sampling is not None), 2 * max(target, 1)
        )
        share = rollout.n_model / (target or max(1.0, allowed / 2))
        return (1.0 if below == "flat" else share) if share <= 1 else max(0.0, 2 - share)

    return [r + weight * np.array([shape(x) for x in group.rollouts]) for group, r in zip(groups, rewards, strict=True)]
