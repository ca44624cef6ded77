"""The cost of help rises during training, so that the policy uses help early and does without it later.

"EAPO: Enhancing Policy Optimization with On-Demand Expert Assistance", 2025 (arXiv 2509.23730); the abstract gives the
mechanism; the linear schedule is our reading.

    R = r - c_t n,        c_t = first + (last - first) min(1, t / steps)

Shapes: one reward per rollout in and out; unscorable stays NaN. n is the part `name` of the score (how often help was
asked), t the steps so far: `state["step"]` counts them. With first = last = 0 help stays in use, because nothing
discourages it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{name}",)


def annealed_cost(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    name: str = "consults",
    first: float = 0.0,
    last: float = 0.3,
    steps: int = 100,
) -> Rewards:
    if steps < 1:
        raise ValueError(f"annealed_cost: steps is {steps}: the cost needs at least one step to rise in")
    step = state.get("step", 0)
    state["step"] = step + 1
    cost = first + (last - first) * min(1.0, step / steps)
    return [r - cost * part(group, r, name) for group, r in zip(groups, rewards, strict=True)]
