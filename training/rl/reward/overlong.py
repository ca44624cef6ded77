"""A soft penalty for overlong answers.

Yu et al. 2025, "DAPO: An Open-Source LLM Reinforcement Learning System at Scale" (arXiv 2503.14476), equation 13.

    with L = tokens the model wrote and start = max_length - cache:
    r <- r + scale * ( 0 if L <= start,   (start - L) / cache if L <= max_length,   -1 beyond )

Shapes: one reward per rollout in and out; unscorable stays NaN. Defaults are the paper's, for rewards of -1 and 1: for
rewards of 0 and 1 use `scale` 0.5. Sensible lengths depend on the model and its budget: with `max_length` 0 the limit
is the token limit of each turn (the paper's answers are one turn), the slope is its last `share`, and the longest turn
counts; 0.2 corresponds to the paper's 4,096 of 20,480. Leaves out masking the loss of truncated answers ("overlong
filtering").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards, Rollout


def overlong(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    max_length: int = 20480,
    cache: int = 4096,
    share: float = 0.2,
    scale: float = 1.0,
) -> Rewards:
    if max_length == 0:
        if not 0 < share <= 1:
            raise ValueError(f"overlong: share is {share}; it must be above 0 and at most 1")
        return [
            r - scale * np.array([_beyond(x, share) for x in group.rollouts])
            for group, r in zip(groups, rewards, strict=True)
        ]
    if not 0 < cache <= max_length:
        raise ValueError(
            f"overlong: cache is {cache} and max_length {max_length}; cache must be above 0 and at most max_length"
        )
    lengths = [np.array([rollout.n_model for rollout in group.rollouts], dtype=np.float64) for group in groups]
    return [
        r + scale * np.clip((max_length - cache - n) / cache, -1.0, 0.0) for r, n in zip(rewards, lengths, strict=True)
    ]


def _beyond(rollout: Rollout, share: float) -> float:
    """How far, from 0 to 1, the longest turn is along the slope that ends at its budget."""
    slopes = [
        (len(s.ids) / s.sampling.max_tokens - (1 - share)) / share for s in rollout.segments if s.sampling is not None
    ]
    return min(max([0.0, *slopes]), 1.0)
