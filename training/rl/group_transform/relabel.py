"""Every answer is put under a prompt with the feedback that it earned.

"Language Models Can Learn from Verbal Feedback Without Scalar Rewards", 2025 (FCP, arXiv 2509.22638).

    each rollout (x, y)  ->  (<EF> c </EF> after the question, y),      c = `right` where its score exceeds 0, else
    `wrong`

Shapes: groups in and out, of the same sizes; all rollouts become off_policy, their log-probs those of the policy under
the new prompt. With advantage 1 for all and the plain policy gradient it is maximum likelihood of answers given feedback:
failures are learned as examples of failure. At test time, prompt with the feedback for a right answer to get one.
Unscorable rollouts stay as they are. Leaves out sampling with the good feedback during training.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.group_transform import asked
from training.rl.rollout_services import RolloutServices
from training.types import Group


def relabel(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    right: str = "This answer is correct.",
    wrong: str = "This answer is wrong.",
) -> list[Group]:
    out = []
    for group in groups:
        told = tuple(
            r
            if math.isnan(x)
            else services.again(r, asked(r.problem, f" <EF> {right if x > 0 else wrong} </EF>"), group.id)
            for r, x in zip(group.rollouts, group.rewards, strict=True)
        )
        out.append(replace(group, rollouts=told))
    return out
