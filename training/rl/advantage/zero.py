"""Zero advantages: the gradient comes from regularisers alone.

For distillation on the student's own samples, Agarwal et al. 2023, "On-Policy Distillation of Language Models: Learning
from Self-Generated Mistakes" (arXiv 2306.13649).

    A_i = 0

Shapes: one reward per rollout in, one advantage per rollout out. Rewards are still logged, so a run shows how good the
student's answers are; they just have no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.types import Advantages, Group, Rewards


def zero(groups: Sequence[Group], rewards: Rewards, state: dict, rng: np.random.Generator) -> Advantages:
    return [np.zeros(len(r)) for r in rewards]
