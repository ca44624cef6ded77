"""A right answer that used every tool scores a little more than one that did not; a bad form scores less than a wrong
answer.

Dong et al. 2025, "Tool-Star: Empowering LLM-Brained Multi-Tool Reasoner via Reinforcement Learning" (arXiv 2505.16410).

    R = bad                     where the form is bad: the part `malformed` is above 0, or there is no answer
    R = max(r + bonus, r)       where r > 0 and every tool of `tools` was used with success,  else r

Shapes: one reward per rollout in and out; unscorable stays NaN. A tool was used if the part `used_NAME` of the score,
which environments with tools give, says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("answered", "used_{tools}")


def multi_tool(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    tools: tuple = ("search", "python"),
    bonus: float = 0.1,
    bad: float = -1.0,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        formed = (part(group, r, "malformed") <= 0) & (part(group, r, "answered") > 0)
        every = np.all([part(group, r, f"used_{name}") > 0 for name in tools], axis=0)
        paid = np.where(formed, np.where((r > 0) & every, np.maximum(r + bonus, r), r), bad)
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out
