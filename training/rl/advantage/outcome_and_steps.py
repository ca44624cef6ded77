"""Outcome and steps, each normalised within the group, mixed in a proportion that shifts to the outcome during
training.

"RL Tango: Reinforcing Generator and Verifier Together for Language Reasoning", 2025 (arXiv 2505.15034), the generator's
side.

    A_out = (r_i - mean(r)) / (std(r) + eps)          s = rewards of turns / turns of the rollout, (s - mean(s)) /
    (std(s) + eps)
    A_t = (1 - alpha) A_out + alpha sum_{k >= t} s_k,          alpha = alpha0 (1 - min(1, step / decay_steps))

Shapes: one reward per rollout in, one advantage per token out, the same within a turn. A verifier gives the rewards of
turns, +1 or -1; s is normalised over all turns of the group. `state["step"]` counts the calls, so late training uses
the outcome alone. With equal rewards the advantages are nonzero if the turns' rewards differ. The split and the weights
are our reading.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative, turns
from training.rl.standard import standard
from training.types import Advantages, Group, Rewards

READS = ("turn_reward",)

MIN_GROUP = 2


def outcome_and_steps(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha0: float = 0.5,
    decay_steps: int = 100,
    eps: float = 1e-6,
) -> Advantages:
    step = state.get("step", 0)
    state["step"] = step + 1
    alpha = alpha0 * (1 - min(1.0, step / max(decay_steps, 1)))
    advantages: list = []
    for group, r, outcome in zip(groups, rewards, relative(rewards, lambda x: standard(x, eps)), strict=True):
        played = [turns(rollout) if not math.isnan(x) else [] for rollout, x in zip(group.rollouts, r, strict=True)]
        scaled = iter(standard(np.array([y / len(p) for p in played for _, y in p]), eps))
        advantages.append([np.zeros(rollout.n_model) for rollout in group.rollouts])
        for out, p, a in zip(advantages[-1], played, outcome, strict=True):
            sums = np.cumsum([next(scaled) for _ in p][::-1])[::-1]
            for (here, _), s in zip(p, sums, strict=True):
                out[here] = (1 - alpha) * a + alpha * s
    return advantages
