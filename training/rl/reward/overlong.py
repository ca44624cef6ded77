"""Soft punishment of overlong answers.

Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale" (arXiv 2503.14476), equation 13.

    with L = tokens the model wrote and start = max_length - cache:
    r <- r + scale * ( 0 if L <= start,   (start - L) / cache if L <= max_length,   -1 beyond )

Shapes: one reward per rollout in and out; unscorable stays NaN. Defaults are the paper's; lengths belong to the model
and its budget, so scale them with it. Leaves out masking the loss of truncated answers ("overlong filtering").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards


def overlong(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    max_length: int = 20480,
    cache: int = 4096,
    scale: float = 1.0,
) -> Rewards:
    if not 0 < cache <= max_length:
        raise ValueError(
            f"overlong: cache is {cache} and max_length {max_length}; cache must be above 0 and at most max_length"
        )
    lengths = [np.array([rollout.n_model for rollout in group.rollouts], dtype=np.float64) for group in groups]
    return [
        r + scale * np.clip((max_length - cache - n) / cache, -1.0, 0.0) for r, n in zip(rewards, lengths, strict=True)
    ]
