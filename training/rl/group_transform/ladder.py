"""The rollouts of a group begin with different views of one clip: from many small frames to few large ones.

"FrameMind: Frame-Interleaved Video Reasoning via Reinforcement Learning" 2025 (dynamic resolution frame sampling, arXiv
2509.24008), read from the abstract: which rollouts get which rung is our reading.

    rollout i of n plays rung i mod (rungs + 1); rung 0 is the plain prompt, as played

so that the group compares views and advantages are normalised across them. Shapes: groups in and out, as many rollouts as
before; every rollout is on-policy under the prompt that it saw. The environment `frames` reads the rung from the problem.
Rollouts that are replaced were sampled in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group


def ladder(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    rungs: int = 3,
) -> list[Group]:
    """rungs: how many the environment has."""
    if rungs < 1:
        raise ValueError(f"group_transform/ladder: rungs is {rungs}: name at least one of the environment's")
    out = []
    for group in groups:
        rollouts = list(group.rollouts)
        for rung in range(rungs):
            places = [i for i in range(len(rollouts)) if i % (rungs + 1) == rung + 1 and not rollouts[i].off_policy]
            if not places:
                continue
            problem = rollouts[places[0]].problem
            seen = replace(problem, args={**problem.args, "rung": rung})
            played = services.play(seen, len(places), group.id)
            for i, one in zip(places, played.rollouts, strict=True):
                rollouts[i] = replace(one, problem=problem)
        out.append(replace(group, rollouts=tuple(rollouts)))
    return out
