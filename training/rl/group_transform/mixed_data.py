"""On-policy and off-policy data in one run: some groups are the policy's own, the others are replaced by data.

Agarwal et al. 2023, "On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes" (arXiv
2306.13649), algorithm 1, with lambda = `on_policy`.

    with probability on_policy    the group as it was played
    else                          as many off_policy rollouts as it has, of the problem's own data

Shapes: groups in and out. The data of a problem are the turns in lineage["demonstration"] (answers of a teacher, say),
else its reference answer as `<answer>...</answer>`; played in the environment, so that they are scored. 1: on-policy,
0: off-policy. The paper draws once per batch of one group. A group without scores is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.group_transform import demonstration
from training.rl.rollout_services import RolloutServices
from training.types import Group


def mixed_data(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    on_policy: float = 0.5,
) -> list[Group]:
    if not 0 <= on_policy <= 1:
        raise ValueError(f"on_policy is {on_policy}: it is the share of groups that the policy writes, from 0 to 1")
    out = []
    for group, chance in zip(groups, rng.random(len(groups)), strict=True):
        if chance < on_policy or np.isnan(group.rewards).all():
            out.append(group)
            continue
        problem = group.rollouts[0].problem
        demonstrated = services.say(problem, demonstration(problem), group.id)
        out.append(replace(group, rollouts=(demonstrated,) * len(group.rollouts)))
    return out
