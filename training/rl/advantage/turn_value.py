"""The advantage of a whole utterance, from a critic evaluated between utterances.

Zhou et al. 2024, "ArCHer: Training Language Model Agents via Hierarchical Multi-Turn RL" (arXiv 2402.19446).

    d_k = r_k + gamma V(before turn k + 1) - V(before turn k),         the last turn: r_k + the episode's reward - V
    A_k = d_k + gamma lam A_{k+1}

`lam` 0 is ArCHer's; above, it is GAE over turns (GUI-Shepherd 2025, arXiv 2509.23738, of rewards of turns).

Shapes: one reward per rollout in, one advantage per token out, the same within a turn. V is extras["value"] at the first
token of a turn. The high level is a decision process over utterances; the low level gives every token of an utterance
its advantage. Leaves out the replay buffer, double critics and their slow targets. With a critic no group is needed,
and equal rewards keep their advantages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import turns
from training.types import Advantages, Group, Rewards

NEEDS = {"value"}


def turn_value(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    gamma: float = 0.98,
    lam: float = 0.0,
) -> Advantages:
    advantages: list = []
    for group, r in zip(groups, rewards, strict=True):
        advantages.append([])
        for rollout, x in zip(group.rollouts, r, strict=True):
            out, values = np.zeros(rollout.n_model), rollout.each("value")
            played = [p for p in turns(rollout) if p[0].start < p[0].stop]
            ahead = 0.0
            for k, (here, step) in reversed(list(enumerate(played if not math.isnan(x) else []))):
                later = x if k == len(played) - 1 else gamma * values[played[k + 1][0].start]
                ahead = step + later - values[here.start] + gamma * lam * ahead
                out[here] = ahead
            advantages[-1].append(out)
    return advantages
