"""One brief imitation of verified answers, when accuracy stagnates and right answers are at their shortest.

"How LLMs Learn to Reason: A Complex Network Perspective", 2025 (Annealed-RLVR, arXiv 2509.23629); the trigger is our
reading.

    length_t = mean tokens of right answers, accuracy_t = mean score, each smoothed over `window` calls
    the heat begins when length rises again (above its minimum) while accuracy rose by less than `plateau` over the
    window for `steps` calls a group whose mean score is in (low, high] gets a copy of one of its own right answers:
    off_policy

Shapes: groups in and out. The off_policy rollouts are for a regulariser to imitate; if the advantage estimator gives
them 0 they have no other effect. The heat happens `times` times. `state` holds the histories, the remaining calls, and
how often it has happened.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group


def heat(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    window: int = 20,
    plateau: float = 0.01,
    steps: int = 100,
    low: float = 0.0,
    high: float = 0.5,
    times: int = 1,
) -> list[Group]:
    lengths, accuracy = state.setdefault("lengths", []), state.setdefault("accuracy", [])
    scored = [(r, float(x)) for g in groups for r, x in zip(g.rollouts, g.rewards, strict=True) if not math.isnan(x)]
    right = [r.n_model for r, x in scored if x > 0]
    lengths.append(float(np.mean(right)) if right else float(lengths[-1] if lengths else 0.0))
    accuracy.append(float(np.mean([x for _, x in scored])) if scored else 0.0)
    smooth = [float(np.mean(lengths[max(0, i - window + 1) : i + 1])) for i in range(len(lengths))]
    if len(lengths) > 2 * window and state.get("left", 0) == 0 and state.get("times", 0) < times:
        still = np.mean(accuracy[-window:]) - np.mean(accuracy[-2 * window : -window]) < plateau
        if still and smooth[-1] > min(smooth[window:]):
            state["left"], state["times"] = steps, state.get("times", 0) + 1
    if not state.get("left", 0):
        return list(groups)
    state["left"] -= 1
    out = []
    for group in groups:
        r = group.rewards
        own = [x for x, y in zip(group.rollouts, r, strict=True) if y > 0]
        mean = float(np.nanmean(r)) if (~np.isnan(r)).any() else 1.0
        more = (
            (services.again(own[int(rng.integers(len(own)))], own[0].problem, group.id),)
            if own and low < mean <= high
            else ()
        )
        out.append(replace(group, rollouts=(*group.rollouts, *more)))
    return out
