"""Rewards a rewriter for the gain in accuracy on the rewritten problem; a rewrite that changes the answer is penalised.

Zhang et al. 2025, "CLPO: Curriculum Learning meets Policy Optimization for LLM Reasoning" (arXiv 2509.25004), second
version.

    r <- r - before,   r = accuracy on the rewritten problem, before = that on the original one (a part of the score)
    r <- cost if the part `changed` of the score is not 0

Shapes: one reward per rollout in and out; unscorable stays NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("before",)


def gain(
    groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator, *, cost: float = -1.0
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        paid = np.where(part(group, r, "changed") > 0, cost, r - part(group, r, "before"))
        out.append(np.where(np.isnan(r), np.nan, paid))
    return out
