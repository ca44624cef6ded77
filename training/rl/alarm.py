"""Warnings about the curves of RL: the reward has collapsed, or the entropy has exploded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

WINDOW = 5  # number of steps in a mean
COLLAPSED = 0.2  # share of the best mean reward so far
WORTH = 0.05  # if the best mean is below this, there is no reward to lose
EXPLODED = 3.0  # factor on the entropy of the first steps
NATS = 0.5  # and at least this much above it


def alarms(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    """The warnings that start with the last of the steps `rows` (metrics by name): name -> a sentence; {} if there are
    none."""
    now, before = _true(rows), _true(rows[:-1])
    return {name: sentence for name, sentence in now.items() if name not in before}


def _true(rows: Sequence[Mapping[str, float]]) -> dict[str, str]:
    out = {}
    rewards = _means(rows, "reward")
    if len(rewards) and rewards.max() >= WORTH and rewards[-1] < COLLAPSED * rewards.max():
        out["reward_collapsed"] = (
            f"the reward was {rewards.max():.3f} and is {rewards[-1]:.3f} (means of {WINDOW} steps): lower rl.optimizer.lr, or hold the "
            "policy to its reference (regularisers: kl)"
        )
    entropies = _means(rows, "entropy")
    if len(entropies) and entropies[-1] > max(EXPLODED * entropies[0], entropies[0] + NATS):
        out["entropy_exploded"] = (
            f"the entropy was {entropies[0]:.3f} nats a token and is {entropies[-1]:.3f} (means of {WINDOW} steps): the policy is coming "
            "apart; lower rl.optimizer.lr"
        )
    return out


def _means(rows: Sequence[Mapping[str, float]], name: str) -> np.ndarray:
    """Moving means [n - WINDOW + 1] over the steps that have the metric."""
    values = np.array([r[name] for r in rows if name in r and np.isfinite(r[name])], dtype=np.float64)
    return np.convolve(values, np.ones(WINDOW) / WINDOW, "valid") if len(values) >= WINDOW else np.zeros(0)
