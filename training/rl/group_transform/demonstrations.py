"""A demonstration joins the group: the solution that came with the problem, or its reference answer alone.

RL-PLUS, Dong et al. 2025 (arXiv 2508.00222); Wang et al. 2025, "Learning to Align, Aligning to Learn" (GRAO, arXiv
2508.07750).

    group  ->  group + `count` off_policy rollouts          when "always", or "none_right": only if no score is above 0
    worked False: always the reference answer alone

Shapes: groups in and out. The turns are played in the environment, so that the demonstration is scored like any answer;
its log-probs are the policy's own. A demonstration that the environment does not reward is still added; the filters may
drop it. A problem may carry its turns in lineage["demonstration"], else the answer is written as
`<answer>...</answer>`. A group without scores is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from training.rl.group_transform import demonstration, nothing_right, reference_answer
from training.rl.rollout_services import RolloutServices
from training.types import Group


def demonstrations(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    count: int = 1,
    when: Literal["always", "none_right"] = "always",
    worked: bool = True,
) -> list[Group]:
    out = []
    for group in groups:
        wanted = nothing_right(group) if when == "none_right" else not np.isnan(group.rewards).all()
        problem = group.rollouts[0].problem
        turns = demonstration(problem) if worked else reference_answer(problem)
        more = [services.say(problem, turns, group.id) for _ in range(count)] if wanted else []
        out.append(replace(group, rollouts=(*group.rollouts, *more)))
    return out
