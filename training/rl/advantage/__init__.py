"""Advantage estimators, one file each; they share `relative` and `turns`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from training.types import Advantages, Group, Rewards, Rollout


class AdvantagePiece(Protocol):
    """Turns the rewards of groups into advantages.

    Args:
        groups: the groups of one step, in order
        rewards: per group float64 [n], one per rollout; NaN where a rollout could not be scored
        state: a mapping of plain values and arrays that persists from step to step and is saved in checkpoints
        rng: the only source of randomness

    Returns:
        per group, per rollout: a float for the whole rollout, or float64 [n_model] with one per token that the
            model wrote; 0 where a rollout could not be scored

    Check gives:
        rewards: per group a list of rewards; .nan is a rollout that could not be scored
        state: the piece's state before (empty)
        **rollouts: per group or rollout, the arguments of `groups` in tasks/lab/toy.py: lengths, entropies, parts,
            turns, steps, ...

    Check expects:
        advantages: per group, per rollout a number or a list of numbers
        state: the piece's state afterwards
    """

    def __call__(
        self, groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator
    ) -> Advantages: ...


def relative(rewards: Rewards, formula: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """Advantage of estimators that compare the rollouts of a group with each other.

    rewards   one float64 [n] per group, NaN where unscorable
    formula   scorable rewards [m] of one group -> advantages [m]; called only if m >= 2 and they differ

    Returns one float64 [n] per group. An unscorable rollout gets 0 and no baseline includes it. A group with fewer than
    two scorable rollouts, or with equal rewards, does not say which is better: its advantages are exactly 0, never
    round-off divided by a tiny standard deviation.
    """
    advantages = []
    for group in rewards:
        scorable = ~np.isnan(group)
        values = group[scorable]
        out = np.zeros(len(group))
        if len(values) >= 2 and values.min() < values.max():
            out[scorable] = formula(values)
        advantages.append(out)
    return advantages


def turns(rollout: Rollout) -> list[tuple[slice, float]]:
    """For each turn of the model: the slice of its tokens among the `n_model`, and its reward from the environment (0
    if none)."""
    out, at = [], 0
    for s in rollout.segments:
        if s.role == "model":
            out.append((slice(at, at + len(s.ids)), float(s.reward or 0.0)))
            at += len(s.ids)
    return out
