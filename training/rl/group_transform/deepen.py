"""Harder problems get more rollouts, in a second round that depends on the first.

"Depth-Breadth Synergy in RLVR: Unlocking LLM Reasoning Gains with Adaptive Exploration", 2025 (DARS, arXiv 2508.13755).

    u = mean score of the first N rollouts of a problem;  where u < 1/2 it is played again until it has, in all,
    equal    round(N * 0.25 / (u (1 - u)))            hardness    round(3 / u)            at least N, at most `cap` (u =
    0: `cap`)

Shapes: groups in, larger groups out. The total of |advantage| that a prompt contributes is N 2 u (1 - u): "equal" makes
it the same for all hard problems, "hardness" raises it with 1 / u. Both rounds are sampled by the policy itself, so no
ratio needs correcting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group


def deepen(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    schedule: Literal["equal", "hardness"] = "equal",
    cap: int = 32,
) -> list[Group]:
    out = []
    for group in groups:
        n, r = len(group.rollouts), group.rewards[~np.isnan(group.rewards)]
        u = float(r.mean()) if len(r) else 1.0
        total = n
        if u < 0.5:
            wanted = cap if u <= 0 else 0.25 * n / (u * (1 - u)) if schedule == "equal" else 3 / u
            total = max(n, min(cap, round(wanted)))
        more = services.play(group.rollouts[0].problem, total - n, group.id).rollouts if total > n else ()
        out.append(replace(group, rollouts=(*group.rollouts, *more)))
    return out
