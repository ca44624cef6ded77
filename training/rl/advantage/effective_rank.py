"""GRPO's advantage, raised a little for answers whose hidden states explore or accelerate more than usual.

"Beyond the Exploration-Exploitation Trade-off: A Hidden State Approach for LLM Reasoning in RLVR", 2025 (VERL, arXiv
2509.23808).

    d_X = clip((X - mu_X) / (|mu_X| + eps), -5, 5) for the effective rank X = ER, its velocity ERV, its acceleration
    ERA; mu_X moving means
    g = sigmoid(gain d_ERA);     aux = g tanh(d_ER) + (1 - g) tanh(d_ERV);     A = A0 + min(relu(aux), |A0| / kappa)

Shapes: one reward per rollout in, one advantage per rollout out; A0 is GRPO's, and the sign never flips. ER, ERV and ERA
are parts "rank", "rank_velocity" and "rank_acceleration" that the observation "effective_rank" puts into scores. mu
starts at the first step's mean and is kept in `state`. Leaves out the factor 1 - (moving score).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage.grpo import grpo
from training.rl.reward import part
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2
NEEDS = {"effective_rank"}
READS = ("rank", "rank_velocity", "rank_acceleration")
NAMES = ("rank", "rank_velocity", "rank_acceleration")


def effective_rank(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    kappa: float = 2.0,
    gain: float = 1.5,
    memory: float = 0.7,
    limit: float = 5.0,
) -> Advantages:
    parts = {name: [part(group, r, name) for group, r in zip(groups, rewards, strict=True)] for name in NAMES}
    away: dict[str, list[np.ndarray]] = {}
    for name, values in parts.items():
        flat = np.concatenate(values) if values else np.zeros(0)
        now = float(np.nanmean(flat)) if (~np.isnan(flat)).any() else 0.0
        mu = state.setdefault(name, now)
        away[name] = [np.clip((np.nan_to_num(x, nan=mu) - mu) / (abs(mu) + 1e-6), -limit, limit) for x in values]
        state[name] = memory * mu + (1 - memory) * now
    advantages = []
    for g, base in enumerate(map(np.asarray, grpo(groups, rewards, state, rng))):
        gate = 1 / (1 + np.exp(-gain * away["rank_acceleration"][g]))
        aux = gate * np.tanh(away["rank"][g]) + (1 - gate) * np.tanh(away["rank_velocity"][g])
        advantages.append(base + np.minimum(np.maximum(aux, 0.0), np.abs(base) / kappa))
    return advantages
