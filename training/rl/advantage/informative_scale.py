"""GRPO's advantage, scaled up if few groups of the batch are informative: the gradient keeps its size when signals are
sparse.

"Fathom-DeepResearch: Unlocking Long Horizon Information Retrieval and Synthesis for SLMs", 2025 (RAPO, arXiv
2509.24107).

    A_i = (r_i - mean(r)) / (std(r) + eps) * min(cap, groups / informative groups)

A group is informative if its rewards differ, or, with `of: outcomes`, if some of its answers are right and some are
not. (If calls get separate rewards, nearly all rewards differ, and the factor would always be 1.)

Shapes: one reward per rollout in, one advantage per rollout out. std is the sample's (n - 1), or the population's.
Groups without a scored rollout count in neither number. The exact factor and its cap are our reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.advantage import relative
from training.types import Advantages, Group, Rewards

MIN_GROUP = 2


def informative_scale(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    cap: float = 4.0,
    std: Literal["sample", "population"] = "population",
    eps: float = 1e-6,
    of: Literal["rewards", "outcomes"] = "rewards",
) -> Advantages:
    told = rewards if of == "rewards" else [(g.rewards > 0) + 0.0 * g.rewards for g in groups]
    scored = [r[~np.isnan(r)] for r in told]
    scored = [r for r in scored if len(r)]
    informative = sum(r.min() < r.max() for r in scored)
    factor = min(cap, len(scored) / informative) if informative else 1.0
    ddof = 1 if std == "sample" else 0
    return [factor * c for c in relative(rewards, lambda r: (r - r.mean()) / (r.std(ddof=ddof) + eps))]
