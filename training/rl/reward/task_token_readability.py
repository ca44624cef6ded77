"""The task reward minus a cost of tokens plus the readability of the messages: agents should talk little, and not in a
private code.

Chen et al. 2024, "Optima: Optimizing Effectiveness and Efficiency for LLM-Based Multi-Agent System" (arXiv 2410.08115).

    R = r - tokens n / max n of the group + loss g,        g = 1 / max(1, mean -log p of the messages)

Shapes: one reward per rollout in and out; unscorable stays NaN. n are the tokens that the model wrote. p is the
policy's own sampling probability, where the paper uses the base model. In the first round they are equal; later a
private code of the policy would look readable, so the recipe adds `kl` to the reference. g is 1 for messages with a
probability of 1 / e per token, or more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.types import Group, Rewards


def task_token_readability(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    tokens: float = 0.6,
    loss: float = 0.6,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        n = np.array([rollout.n_model for rollout in group.rollouts], dtype=np.float64)
        most = max([x for x, y in zip(n, r, strict=True) if not math.isnan(y)], default=1.0)
        surprise = np.array([-float(np.mean(x.each("logp"))) if x.n_model else 0.0 for x in group.rollouts])
        out.append(r - tokens * n / max(most, 1.0) + loss / np.maximum(1.0, surprise))
    return out
