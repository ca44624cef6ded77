"""A calibrated reward for answers that pass all judges, 0 for the others.

Xu et al. 2024, "The Perfect Blend: Redefining RLHF with Mixture of Judges" (CGPO: CRPG, arXiv 2409.20370).

    R = sigmoid(r - reference) if every part named in `judges` exceeds 1/2,    else 0

Shapes: one reward per rollout in and out; unscorable stays NaN. Each judge is a rule or a verdict that checks one
thing, such as a format or a known reward hack. A policy cannot trade a violation for reward. `reference` is the reward
of a reference answer: one number here, one per prompt in the paper. Leaves out dropping answers far from the reference,
and optimizers per task.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.rl.reward import part
from training.types import Group, Rewards

READS = ("{judges}",)


def judged(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    judges: tuple = ("answered",),
    reference: float = 0.0,
) -> Rewards:
    out = []
    for group, r in zip(groups, rewards, strict=True):
        passed = (
            np.all([part(group, r, name) > 0.5 for name in judges], axis=0) if judges else np.ones(len(r), dtype=bool)
        )
        calibrated = 1 / (1 + np.exp(-np.clip(r - reference, -50, 50)))
        out.append(np.where(np.isnan(r), np.nan, np.where(passed, calibrated, 0.0)))
    return out
