"""Makes rows of their own of what each level of a hierarchy did: one of the high level's decisions, and one of every
sub-task of the low level.

Sutton, Precup and Singh 1999, "Between MDPs and Semi-MDPs" (the reward of a decision is that of all steps until the
next one); used here for ReProHRL, 2023, arXiv 2308.08737.

    high level    a_1, a_2, ...     r_i = sum of the rewards from decision i to before decision i + 1
    sub-task      the moves after a decision, with their own rewards: its return ends with the sub-task

Shapes: groups in, the same groups out, each rollout replaced by its high level's, then its sub-tasks in order. The
scores of the parts stay those of the episode for the high level; a sub-task's is the sum of its rewards. Rollouts
without a decision stay as they are. A step is the high level's where its observation says so (`high`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from synth.types import Scored
from training.rl.group_transform._steps import each_step
from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout, Segment

STEPS = True  # it does not use the services, so it works for worlds of numbers too
GIVES = ("turn_reward",)


def levels(
    groups: Sequence[Group], services: RolloutServices, state: dict, rng: np.random.Generator, *, high: int = 0
) -> list[Group]:
    """high: the index of the observation that is 1 where the high level is asked."""
    return [replace(g, rollouts=tuple(part for r in g.rollouts for part in _parts(r, high))) for g in groups]


def _parts(rollout: Rollout, high: int) -> list[Rollout]:
    if not rollout.n_model or not isinstance(rollout.score, Scored):
        return [rollout]
    first, *_ = rollout.segments
    steps = [s for s in rollout.segments if s.role == "model"]
    high_level = each_step(rollout, "observation")[:, high] > 0.5
    if not high_level.any():
        return [rollout]
    decisions: list[Segment] = []
    tasks: list[list[Segment]] = []
    for step, is_high in zip(steps, high_level, strict=True):
        if is_high:
            decisions.append(replace(step, reward=step.reward or 0.0))
            tasks.append([])
        elif decisions:
            decisions[-1] = replace(decisions[-1], reward=(decisions[-1].reward or 0.0) + (step.reward or 0.0))
            tasks[-1].append(step)
    out = [replace(rollout, segments=(first, *decisions))]
    for task in filter(None, tasks):
        total = float(sum(s.reward or 0.0 for s in task))
        parts = {**rollout.score.parts, "return": total, "steps": float(len(task))}
        out.append(replace(rollout, segments=(first, *task), score=replace(rollout.score, value=total, parts=parts)))
    return out
