"""Several judgements of one answer as one reward: a weighted sum, with an optional gate and normalisation.

Rubrics with points: Zhou et al. 2025 (RuscaRL, arXiv 2508.16949; a rubric that grows is the piece refined_rubric); constraints
of a plan: "Planner-R1", 2025 (arXiv 2509.25779); facts: "Knowledge-Level Consistency RL", 2025 (arXiv 2509.23765).

    R = sum_k w_k x_k, divided by   "none": 1      "sum": sum_k w_k      "positive": the sum of the positive w_k, and
    clipped to [0, 1] with a gate, an answer whose part `gate` is 0 gets 0

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. x_k are `parts` of the scores ("value": the
reward so far), 0 where a score has no such part; `weights` default to 1 each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{parts}", "{gate}")


def weighted_parts(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("value", "answered"),
    weights: tuple = (),
    normalise: Literal["none", "sum", "positive"] = "none",
    gate: str = "",
) -> Rewards:
    w = np.array(weights or (1.0,) * len(parts), dtype=np.float64)
    if len(w) != len(parts):
        raise ValueError(f"weighted_parts: {len(w)} weights for {len(parts)} parts; give one per part, or none")
    scale = {"none": 1.0, "sum": w.sum(), "positive": w[w > 0].sum()}[normalise]
    out = []
    for group, r in zip(groups, rewards, strict=True):
        total = sum(x * part(group, r, name) for x, name in zip(w, parts, strict=True)) / scale
        total = np.clip(total, 0.0, 1.0) if normalise == "positive" else total
        out.append(np.where(np.isnan(r), np.nan, np.where(part(group, r, gate) > 0, total, 0.0) if gate else total))
    return out
