"""Group-relative advantage.

Shao et al. 2024, "DeepSeekMath" (arXiv 2402.03300), outcome supervision; `std="none"` is Dr. GRPO, Liu et al. 2025,
"Understanding R1-Zero-Like Training" (arXiv 2503.20783).

    A_i = (r_i - mean(r)) / (std(r) + eps)          std none:  A_i = r_i - mean(r)

Shapes: one reward per rollout in, one advantage per rollout out. Assumes that the rollouts of a group answer the same
prompt. Dividing by the standard deviation gives more weight to very easy and very hard prompts; `std="none"` removes
that bias. Leaves out process supervision (a reward per step).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def grpo(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    std: Literal["sample", "population", "none"] = "sample",
    eps: float = 1e-6,
) -> Advantages:
    def formula(r: np.ndarray) -> np.ndarray:
        centred = r - r.mean()
        return centred if std == "none" else centred / (r.std(ddof=1 if std == "sample" else 0) + eps)

    return relative(rewards, formula)
