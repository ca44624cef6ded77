"""Several prompts share a group, and a success under one prompt is repeated under those that failed.

"MEML-GRPO: Heterogeneous Multi-Expert Mutual Learning for RLVR Advancement", 2025 (arXiv 2508.09670); the form is our
reading.

    group  ->  group + `samples` rollouts under each text of `prompts` (added to the question)
    mutual: for each prompt without a success, one success of another prompt is repeated under it: off_policy

Shapes: groups in, larger groups out; info["expert"] is the prompt's number, 0 the plain one. The advantage compares
rollouts of all prompts. The off_policy ones are for a regulariser to imitate. A group without scores is not changed.
Leaves out the SFT on each expert's style.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.group_transform import asked
from training.rl.rollout_services import RolloutServices
from training.types import Group


def experts(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    prompts: tuple = (" Think step by step.", " Work backwards.", " Check each case."),
    samples: int = 2,
    mutual: bool = True,
) -> list[Group]:
    out = []
    for group in groups:
        if np.isnan(group.rewards).all():
            out.append(group)
            continue
        problem = group.rollouts[0].problem
        ways = [problem, *(asked(problem, text) for text in prompts)]
        played = [group.rollouts, *(services.play(way, samples, group.id).rollouts for way in ways[1:])]
        right = [[r for r in rollouts if getattr(r.score, "value", 0.0) > 0] for rollouts in played]
        shown = []
        for way, own in zip(ways, right, strict=True):
            others = [r for rollouts in right for r in rollouts]
            if mutual and not own and others:
                shown.append(services.again(others[int(rng.integers(len(others)))], way, group.id))
        every = [replace(r, info={**r.info, "expert": e}) for e, rollouts in enumerate(played) for r in rollouts]
        out.append(replace(group, rollouts=(*every, *shown)))
    return out
