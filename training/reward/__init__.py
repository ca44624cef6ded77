"""Reward shaping: `f(groups, rewards, state, rng, *, knobs) -> rewards`, NaN where a rollout could not be scored.

`part` reads one of several objectives off the scores.
"""

from __future__ import annotations

import numpy as np

from training.types import Group


def part(group: Group, rewards: np.ndarray, name: str) -> np.ndarray:
    """[n] float64: part `name` of each rollout's score ("value": its reward), 0 where it has no such part, NaN where unscorable."""
    if name == "value":
        return np.asarray(rewards, dtype=np.float64)
    parts = [getattr(r.score, "parts", {}).get(name, 0.0) for r in group.rollouts]
    return np.where(np.isnan(rewards), np.nan, np.array(parts, dtype=np.float64))
