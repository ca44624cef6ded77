"""Two judges in sequence: a trajectory that fails as a whole earns nothing, however good its turns are.

"DeepTravel: An End-to-End Agentic Reinforcement Learning Framework for Autonomous Travel Planning Agents", 2025 (arXiv
2509.21842).

    R = 0 if the part `gate` of the score is 0, else   "all": 1 if every turn was right       "mean": the mean over
    the turns

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. A turn is right if its own reward is above
0; a rollout without rewards of turns is judged as a whole. If the gate fails, turns are ignored, so that perfect
citations cannot make up for a failed plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{gate}", "turn_reward")


def gated_turns(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    gate: str = "value",
    turns: Literal["all", "mean"] = "all",
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        shares = []
        for rollout in group.rollouts:
            right = [float(s.reward > 0) for s in rollout.segments if s.role == "model" and s.reward is not None]
            shares.append((float(all(right)) if turns == "all" else float(np.mean(right))) if right else 1.0)
        out.append(np.where(np.isnan(r), np.nan, np.where(part(group, r, gate) > 0, shares, 0.0)))
    return out
