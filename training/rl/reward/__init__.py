"""Reward shaping, one file each; `part` reads one of several objectives from the scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from training.types import Group, Rewards


class RewardPiece(Protocol):
    """Shapes the rewards of groups before the advantages are computed.

    Args:
        groups: the groups of one step, in order
        rewards: per group float64 [n], one per rollout; NaN where a rollout could not be scored
        state: a mapping of plain values and arrays that persists from step to step and is saved in checkpoints
        rng: the only source of randomness

    Returns:
        per group float64 [n]: the shaped rewards, NaN exactly where they were NaN

    Check gives:
        rewards: per group a list of rewards; .nan is a rollout that could not be scored
        state: the piece's state before (empty)
        **rollouts: per group or rollout, the arguments of `groups` in tasks/lab/toy.py: lengths, entropies, parts,
            turns, steps, ...

    Check expects:
        rewards: per group the shaped rewards
        state: the piece's state afterwards
    """

    def __call__(self, groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Rewards: ...


def part(group: Group, rewards: np.ndarray, name: str) -> np.ndarray:
    """[n] float64: part `name` of each rollout's score ("value": its reward), 0 where it has no such part, NaN where
    unscorable."""
    if name == "value":
        return np.asarray(rewards, dtype=np.float64)
    parts = [getattr(r.score, "parts", {}).get(name, 0.0) for r in group.rollouts]
    return np.where(np.isnan(rewards), np.nan, np.array(parts, dtype=np.float64))
