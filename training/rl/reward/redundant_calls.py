"""Reduces the reward of a right answer for redundant calls, and gives a wrong one a little for useful calls.

"Fathom-DeepResearch: Unlocking Long Horizon Information Retrieval and Synthesis for SLMs", 2025 (arXiv 2509.24107).

    right (r > 0)    r <- r (1 - penalty * repeated / calls)
    wrong            r <- min(cap, explore * (calls - repeated))

Shapes: one reward per rollout in and out; unscorable stays NaN. `calls` and `repeated` are parts of the score (an
absent part is 0). A program can only detect an identical call; in the paper a model tags each call as exploration or
verification, unique or redundant, with separate rewards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("calls", "repeated")


def redundant_calls(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    penalty: float = 0.5,
    explore: float = 0.05,
    cap: float = 0.2,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        calls, repeated = part(group, r, "calls"), part(group, r, "repeated")
        right = r * (1 - penalty * repeated / np.maximum(calls, 1.0))
        out.append(np.where(r > 0, right, np.where(np.isnan(r), np.nan, np.minimum(cap, explore * (calls - repeated)))))
    return out
