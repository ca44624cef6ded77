"""Advantage estimators: rewards of groups in, credit per rollout out. One file per estimator; `relative` is what they share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from training.types import Rewards, Rollout


def relative(rewards: Rewards, formula: Callable[[np.ndarray], np.ndarray]) -> list[np.ndarray]:
    """Credit of estimators that compare the rollouts of a group with each other.

    rewards   one float64 [n] per group, NaN where unscorable
    formula   scorable rewards [m] of one group -> credit [m]; called only where m >= 2 and they differ

    Returns one float64 [n] per group. An unscorable rollout gets 0 and no baseline sees it. A group with fewer than two
    scorable rollouts, or with equal ones, says nothing about which is better: its credit is exactly 0, never round-off
    divided by a tiny standard deviation.
    """
    credit = []
    for group in rewards:
        scorable = ~np.isnan(group)
        values = group[scorable]
        out = np.zeros(len(group))
        if len(values) >= 2 and values.min() < values.max():
            out[scorable] = formula(values)
        credit.append(out)
    return credit


def standard(x: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """[n] less the mean, in units of the population's deviation; exactly 0 where all are equal, or for a single one."""
    return np.zeros(len(x)) if len(x) < 2 or x.min() == x.max() else (x - x.mean()) / (x.std() + eps)


def turns(rollout: Rollout) -> list[tuple[slice, float]]:
    """Per turn of the model: where its tokens are among the `n_model`, and the reward that the environment gave it (0 where none)."""
    out, at = [], 0
    for s in rollout.segments:
        if s.role == "model":
            out.append((slice(at, at + len(s.ids)), float(s.reward or 0.0)))
            at += len(s.ids)
    return out
