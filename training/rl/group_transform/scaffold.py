"""Some of the grading criteria are shown to part of the group, fewer and fewer over training.

Zhou et al. 2025, "Breaking the Exploration Bottleneck: Rubric-Scaffolded Reinforcement Learning for General LLM
Reasoning" (RuscaRL, arXiv 2508.16949).

    sample i of G sees a random share lambda_i lambda_step of the criteria:  lambda_i = (G - i) / (G - 1),  i = 1 ... G
    lambda_step = 1 / (1 + exp(steepness (t / T - t0)))

Shapes: groups in and out, of the same sizes. Criteria are the texts of lineage["rubric"] of a problem, else a single
criterion that states the reference answer. A sample that sees any is played with them and then put under the plain
prompt: off_policy, with the policy's log-probs of the plain prompt. If the share is too small for one criterion, the
sample is not played again. `state["step"]` counts calls; T is `steps`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.group_transform import asked
from training.rl.rollout_services import RolloutServices
from training.types import Group


def scaffold(
    groups: Sequence[Group],
    services: RolloutServices,
    state: dict,
    rng: np.random.Generator,
    *,
    steps: int = 100,
    t0: float = 0.2,
    steepness: float = 125.0,
) -> list[Group]:
    step = state.get("step", 0)
    state["step"] = step + 1
    late = 1 / (1 + math.exp(min(50.0, steepness * (step / max(steps, 1) - t0))))
    out = []
    for group in groups:
        problem, n = group.rollouts[0].problem, len(group.rollouts)
        criteria = list(problem.lineage.get("rubric", ())) or [f"The answer is {problem.answer}."]
        rollouts = []
        for i, rollout in enumerate(group.rollouts):
            count = round(late * (n - 1 - i) / max(n - 1, 1) * len(criteria))
            if not count:
                rollouts.append(rollout)
                continue
            seen = sorted(rng.choice(len(criteria), size=count, replace=False))
            helped = services.play(asked(problem, "\n" + "\n".join(criteria[j] for j in seen)), 1, group.id)
            rollouts.append(services.again(helped.rollouts[0], problem, group.id))
        out.append(replace(group, rollouts=tuple(rollouts)))
    return out
