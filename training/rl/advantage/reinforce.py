"""The reward itself, minus a baseline that all prompts share.

Williams 1992, "Simple statistical gradient-following algorithms for connectionist reinforcement learning".

    A_i = r_i - b,      then  b <- decay * b + (1 - decay) * mean of this step's rewards

Shapes: one reward per rollout in, one advantage per rollout out. b starts at `baseline`; decay 1 keeps it there. b is
updated after use, so it never depends on the rewards from which it is subtracted. `state["baseline"]` holds b. Equal
rewards keep their advantages: a group of one is enough. Leaves out baselines per prompt and learned ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards


def reinforce(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    baseline: float = 0.0,
    decay: float = 1.0,
) -> Advantages:
    b = state.setdefault("baseline", baseline)
    flat = np.concatenate([np.asarray(r, dtype=np.float64) for r in rewards]) if len(rewards) else np.zeros(0)
    scorable = flat[~np.isnan(flat)]
    if len(scorable):
        state["baseline"] = float(decay * b + (1 - decay) * scorable.mean())
    return [np.where(np.isnan(r), 0.0, r - b) for r in rewards]
