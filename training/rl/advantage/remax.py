"""The greedy answer as the baseline.

Li et al. 2023, "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language
Models" (arXiv 2310.10505).

    A_i = r_i - r(greedy answer to the same prompt)

Shapes: one reward per rollout in, one advantage per rollout out. The greedy answer is played at temperature 0 in
addition to the samples and never trained on; if it has no score, the baseline is 0. It does not depend on the sample,
so the gradient stays unbiased with one sample per prompt. Equal rewards keep their advantages. The baseline is the raw
score of the greedy answer, without reward shaping.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.types import Scored
from training.types import Advantages, Group, Rewards

NEEDS = {"greedy"}


def remax(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    advantages = []
    for group, r in zip(groups, rewards, strict=True):
        if group.greedy is None:
            raise ValueError(
                f"remax needs the greedy answer of group {group.id}, and none was played: list 'greedy' in what is computed"
            )
        score = group.greedy.score
        advantages.append(np.where(np.isnan(r), 0.0, r - (score.value if isinstance(score, Scored) else 0.0)))
    return advantages
