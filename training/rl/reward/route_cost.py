"""Correctness and low cost in a fixed proportion; both are void if the form is bad.

Zhang et al. 2025, "Router-R1: Teaching LLMs Multi-Round Routing and Aggregation via Reinforcement Learning" (arXiv
2506.09033).

    R = -1                                             where the part `format` is 0
    R = (1 - alpha) r + alpha (1 - (c - lo) / (hi - lo))        else

Shapes: one reward per rollout in and out; unscorable stays NaN. c is the part `name` of the score. lo and hi are the
lowest and the highest cost in any step so far, this one included (`state["lo"]`, `state["hi"]`; if they are equal the
second term is 1), so that prices need no unit. With a separate scale for every batch, the most expensive call overall
could look average within a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{name}", "format")


def route_cost(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    alpha: float = 0.6,
    name: str = "cost",
) -> Rewards:
    if not 0 <= alpha <= 1:
        raise ValueError(f"route_cost: alpha is {alpha}: it is a share, from 0 to 1")
    formed = [part(group, r, "format") > 0 for group, r in zip(groups, rewards, strict=True)]
    costs = [part(group, r, name) for group, r in zip(groups, rewards, strict=True)]
    known = np.concatenate([np.zeros(0), *(c[f & ~np.isnan(c)] for c, f in zip(costs, formed, strict=True))])
    if len(known):
        state["lo"] = min(float(known.min()), state.get("lo", float("inf")))
        state["hi"] = max(float(known.max()), state.get("hi", float("-inf")))
    lo, span = state.get("lo", 0.0), state.get("hi", 0.0) - state.get("lo", 0.0)
    out = []
    for r, c, f in zip(rewards, costs, formed, strict=True):
        cheap = 1.0 - (c - lo) / span if span > 0 else np.ones(len(r))
        out.append(np.where(np.isnan(r), np.nan, np.where(f, (1 - alpha) * r + alpha * cheap, -1.0)))
    return out
