"""If no rollout was right, part of the solution is shown and the problem is played again.

Liu et al. 2025, "GHPO: Adaptive Guidance for Stable and Efficient LLM Reinforcement Learning" (arXiv 2507.10628); help
that is withdrawn again: Zhang et al. 2025, "Learning Like Humans" (ADCL and EGSR, arXiv 2505.08364).

    for share in shares:  play prompt + text + first round(share * characters) of the solution;  stop at the first group
                          with a success
    keep "prompt"   the helped group replaces the first one, including its prompt; if no share helps, the last one does
    keep "answers"  its right answers, at most `most`, are repeated under the plain prompt and replace as many wrong
                    ones: off_policy

Shapes: groups in and out, of the same sizes. A group with any score above 0, or without scores, is never changed.
`after`: the number of calls before it begins; `state["step"]` counts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from training.rl.group_transform import asked, demonstration, nothing_right
from training.rl.rollout_services import RolloutServices
from training.types import Group

TEXT = "\nThe following text is the beginning part of the answer, which you can refer to for solving the problem:\n"


def hints(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    shares: tuple = (0.25, 0.5, 0.75),
    keep: Literal["prompt", "answers"] = "prompt",
    most: int = 1,
    text: str = TEXT,
    after: int = 0,
) -> list[Group]:
    step = state.get("step", 0)
    state["step"] = step + 1
    return [_helped(g, services, shares, keep, most, text) if step >= after and nothing_right(g) else g for g in groups]


def _helped(group: Group, services: RolloutServices, shares: tuple, keep: str, most: int, text: str) -> Group:
    problem = group.rollouts[0].problem
    solution = "\n".join(demonstration(problem))
    played = group
    for share in shares:
        played = services.play(
            asked(problem, text + solution[: round(share * len(solution))]), len(group.rollouts), group.id
        )
        if not nothing_right(played):
            break
    if keep == "prompt":
        return replace(group, rollouts=played.rollouts)
    right = [r for r, x in zip(played.rollouts, played.rewards, strict=True) if x > 0][:most]
    told = tuple(services.again(r, problem, group.id) for r in right)
    return replace(group, rollouts=(*group.rollouts[: len(group.rollouts) - len(told)], *told))
