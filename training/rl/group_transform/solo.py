"""A fixed share of every group plays without the help that the others may request.

"EAPO: Enhancing Policy Optimization with On-Demand Expert Assistance", 2025 (arXiv 2509.23730): help survives only if
it does better than rollouts of the same prompt without help.

    round(share * n) rollouts of a group of n, the last ones, are played again in the environment `env`, where there is
    no help

Shapes: groups in and out, of the same sizes. Rollouts without help are sampled by the policy under the same prompt, so
they are trained on like the rest. A group without scores is not changed, nor is one whose problem is not played in
`helped`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group


def solo(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    share: float = 0.5,
    helped: str = "expert",
    env: str = "single",
) -> list[Group]:
    if not 0 <= share <= 1:
        raise ValueError(f"solo: share is {share}: it is a share, from 0 to 1")
    out = []
    for group in groups:
        problem, n = group.rollouts[0].problem, round(share * len(group.rollouts))
        if not n or problem.env != helped or np.isnan(group.rewards).all():
            out.append(group)
            continue
        alone = services.play(replace(problem, env=env), n, group.id).rollouts
        out.append(replace(group, rollouts=(*group.rollouts[: len(group.rollouts) - n], *alone)))
    return out
