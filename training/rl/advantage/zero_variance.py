"""Uses groups whose rewards are all equal, by the entropy of their tokens.

"No Prompt Left Behind: Exploiting Zero-Variance Prompts in LLM Reinforcement Learning via Entropy-Guided Advantage
Shaping", 2025 (RL-ZVP, arXiv 2509.21880).

    rewards differ    A_it = GRPO's
    all right         A_it = alpha H_it
    all wrong         A_it = -alpha (max_k H_ik - H_it)

Shapes: one reward per rollout in; one advantage per rollout, or per token if the rewards are equal, out. H_it is the
entropy in nats of the distribution from which the token was sampled, a constant. Right answers are reinforced where the
model was unsure; wrong answers are punished where it was sure, and not at all at their most uncertain token. Equal
rewards keep nonzero advantages. Right: reward above `threshold`. alpha is not confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage.grpo import grpo
from training.types import Advantages, Group, Rewards, Rollout

MIN_GROUP = 2


def zero_variance(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 0.1,
    threshold: float = 0.5,
    std: Literal["sample", "population", "none"] = "sample",
    eps: float = 1e-6,
) -> Advantages:
    advantages: list = []
    for group, r, usual in zip(groups, rewards, grpo(groups, rewards, state, rng, std=std, eps=eps), strict=True):
        scorable = r[~np.isnan(r)]
        if len(scorable) < 2 or scorable.min() < scorable.max():
            advantages.append(usual)
            continue
        shaped = []
        for rollout, x in zip(group.rollouts, r, strict=True):
            h = _entropy(rollout)
            shaped.append(
                np.zeros(len(h)) if np.isnan(x) else alpha * h if x > threshold else -alpha * (h.max(initial=0.0) - h)
            )
        advantages.append(shaped)
    return advantages


def _entropy(rollout: Rollout) -> np.ndarray:
    turns = [s.entropy for s in rollout.segments if s.role == "model"]
    written = [e for e in turns if e is not None]
    if len(written) < len(turns):
        raise ValueError("zero_variance needs the entropies of the sampled tokens, and the sampler kept none")
    return np.concatenate(written).astype(np.float64) if written else np.zeros(0)
