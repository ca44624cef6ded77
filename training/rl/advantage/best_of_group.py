"""Imitate the best answers of each prompt, and learn nothing from the others.

Dong et al. 2023, "RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment" (arXiv 2304.06767).

    A_i = 1 where r_i = max of the group, else 0

With the policy loss policy_gradient this is supervised fine-tuning on the best of n. Shapes: one reward per rollout in, one
advantage per rollout out. There is no baseline, so equal rewards keep their advantages; what is unscorable has 0 and counts
nowhere. Departs: all that share the best reward are learned, where the paper keeps one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards


def best_of_group(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    return [
        np.zeros(len(r)) if np.isnan(r).all() else (np.nan_to_num(r, nan=-np.inf) >= np.nanmax(r) - 1e-12).astype(float)
        for r in (np.asarray(x, dtype=np.float64) for x in rewards)
    ]
