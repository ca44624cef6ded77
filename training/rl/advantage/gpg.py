"""Group policy gradient: the centred reward, scaled up to compensate for groups without signal.

Chu et al. 2025, "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning" (arXiv 2504.02546).

    A_i = alpha (r_i - mean(r)) / f_norm,      alpha = groups / groups whose rewards differ

Shapes: one reward per rollout in, one advantage per rollout out. Groups of equal rewards have no gradient but count in the
mean of the loss; alpha undoes that dilution, so the size of a step does not depend on how many there are. Goes with a
plain policy gradient (no ratio, no clip, no reference). Leaves out resampling when too few groups are valid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def gpg(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, f_norm: float = 1.0
) -> Advantages:
    centred = relative(rewards, lambda r: r - r.mean())
    counted = sum(not np.isnan(r).all() for r in rewards)
    alpha = counted / max(1, sum(c.any() for c in centred))
    return [alpha * c / f_norm for c in centred]
