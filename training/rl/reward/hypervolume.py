"""Several rewards in fixed proportion, scaled up in a step that advances the Pareto front.

"Learning to Optimize Multi-Objective Alignment Through Dynamic Reward Weighting", 2025 (hypervolume-guided, arXiv
2509.11452).

    v = mean of each part in this step,   D = HV(front + v) - HV(front),   f = 1 + min(1, gain D) if D > 0, else `idle`
    R = f sum_k w_k x_k

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. HV is the area dominated by the front above
`floor` (two parts). `state["front"]` keeps the points that no other dominates. The paper measures v on held-out
prompts; here it is measured on the step itself. The form of f is our reading. Leaves out weighting by gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{parts}",)


def hypervolume(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    parts: tuple = ("value", "answered"),
    weights: tuple = (0.5, 0.5),
    gain: float = 1.0,
    idle: float = 0.5,
    floor: float = 0.0,
) -> Rewards:
    if len(parts) != 2 or len(weights) != 2:
        raise ValueError(
            f"hypervolume: the area is that of two parts with two weights, not {len(parts)} and {len(weights)}"
        )
    values = [[part(group, r, name) for group, r in zip(groups, rewards, strict=True)] for name in parts]
    flat = [np.concatenate(v) if v else np.zeros(0) for v in values]
    front, factor = state.setdefault("front", []), 1.0
    if (~np.isnan(flat[0])).any():
        point = [float(np.nanmean(x)) for x in flat]
        added = area([*front, point], floor) - area(front, floor)
        factor = 1 + min(1.0, gain * added) if added > 1e-12 else idle
        if added > 1e-12:
            kept = [p for p in front if p[0] > point[0] or p[1] > point[1]]
            state["front"] = [*kept, point]
    return [
        factor * sum((w * v[g] for w, v in zip(weights, values, strict=True)), np.zeros(len(rewards[g])))
        for g in range(len(groups))
    ]


def area(front: Sequence[Sequence[float]], floor: float = 0.0) -> float:
    """The area above (floor, floor) that is dominated by two-dimensional points."""
    total, top = 0.0, floor
    for x, y in sorted(front, key=tuple, reverse=True):
        if y > top and x > floor:
            total += (x - floor) * (y - top)
            top = y
    return total
