"""A judge's number on its own scale as a reward in [0, 1].

"Efficient Online RFT with Plug-and-Play LLM Judges: Unlocking State-of-the-Art Performance" (2025): a judge writes a
score from 1 to 10 into a line of JSON; an unreadable score gets the fallback.

    R = clip((x - low) / (high - low), 0, 1), or `fallback` if the part `readable` exists and is 0

Shapes: one reward per rollout in (replaced) and out; unscorable stays NaN. x is the part `name` of the score ("value":
the reward so far). Leaves out training the judge itself; the numbers reported for it are unusually high, and not a
target.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{name}", "{readable}")


def rescaled_part(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    name: str = "value",
    low: float = 0.0,
    high: float = 1.0,
    readable: str = "",
    fallback: float = 0.0,
) -> Rewards:
    if high <= low:
        raise ValueError(f"rescaled_part: high = {high} must be above low = {low}")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = np.clip((part(group, r, name) - low) / (high - low), 0.0, 1.0)
        paid = np.where(part(group, r, readable) > 0, paid, fallback) if readable else paid
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out
