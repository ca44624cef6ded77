"""Advantage estimators: rewards of groups in, credit per rollout out. One file per estimator; `relative` is what they share."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from training.types import Rewards


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
