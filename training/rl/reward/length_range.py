"""Shorter answers within a group earn more, but a wrong answer never gains by being short.

Kimi Team 2025, "Kimi k1.5: Scaling Reinforcement Learning with LLMs" (arXiv 2501.12599), section 2.3.3.

    l_j = 1/2 - (len_j - min len) / (max len - min len);      right: r_j + weight l_j      wrong: r_j + weight min(0,
    l_j)

Shapes: one reward per rollout in and out; unscorable stays NaN and its length is not counted. Lengths are tokens
that the model wrote. If all are equal nothing changes. Right: reward above `threshold`. `after`: the number of calls
before the piece takes effect, as the paper warms up without it; `state["step"]` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards


def length_range(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    weight: float = 1.0,
    threshold: float = 0.5,
    after: int = 0,
) -> Rewards:
    step = state.get("step", 0)
    state["step"] = step + 1
    out = []
    for group, r in zip(groups, rewards, strict=True):
        n = np.array([rollout.n_model for rollout in group.rollouts], dtype=np.float64)
        known = n[~np.isnan(r)]
        if step < after or not len(known) or known.min() == known.max():
            out.append(np.array(r, dtype=np.float64))
            continue
        share = 0.5 - (n - known.min()) / (known.max() - known.min())
        out.append(r + weight * np.where(r > threshold, share, np.minimum(share, 0.0)))
    return out
