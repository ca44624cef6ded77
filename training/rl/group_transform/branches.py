"""Several answers to each thought: every rollout is sampled again from the start of its answer.

"GRPO-MA: Multi-Answer Generation in GRPO for Stable and Efficient Chain-of-Thought Training", 2025 (arXiv 2509.24494).

    each rollout  ->  itself, and answers - 1 continuations of its text before `marker`

Shapes: groups in; groups of up to `answers` times as many rollouts out. info["branch"] is the number of the thought,
info["thought_tokens"] how many tokens of the rollout belong to the thought; in a continuation the thought is given, not
sampled, so they are 0. A rollout without the marker in its first turn, or an unscorable one, is not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group


def branches(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    answers: int = 4,
    marker: str = "<answer>",
) -> list[Group]:
    if answers < 2:
        raise ValueError(f"branches: answers is {answers}; a thought needs two answers or more for a mean")
    out = []
    for group in groups:
        rollouts = []
        for i, rollout in enumerate(group.rollouts):
            thought, n = services.until(rollout, marker)
            rollouts.append(replace(rollout, info={**rollout.info, "branch": i, "thought_tokens": n}))
            if n:
                more = services.play(rollout.problem, answers - 1, group.id, opening=thought)
                rollouts += [replace(r, info={**r.info, "branch": i}) for r in more.rollouts]
        out.append(replace(group, rollouts=tuple(rollouts)))
    return out
