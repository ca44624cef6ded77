"""Every step is labelled with what the expert would have done there, wherever the policy, or the expert himself, had got to.

DAgger: Ross, Gordon and Bagnell 2011, "A Reduction of Imitation Learning and Structured Prediction to No-Regret Online Learning" (arXiv
1011.0686).

    rollout (s_1, a_1, ..., s_H, a_H)  ->  (s_1, a*(s_1), ..., s_H, a*(s_H)), off_policy

Shapes: groups in and out, of the same sizes; the states and the score stay as they were played. a* is the extra "expert" of a step, which
a world with a function `expert` gives. A regulariser (`imitation`) then learns the labels. Where the policy acted itself these are states
of its own, which is DAgger's; where the world let the expert act, they are the expert's, which is behaviour cloning. Labels are of the
newest rollouts alone: nothing is kept of earlier steps. A group without scores is not changed. Log-probs are those of the actions that were replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from training.rl.rollout_services import RolloutServices
from training.types import Group, Rollout, Segment

STEPS = True  # it does not use the services, so it works for worlds of numbers


def expert_actions(
    groups: Sequence[Group], services: RolloutServices, state: dict, rng: np.random.Generator
) -> list[Group]:
    return [
        g if np.isnan(g.rewards).all() else replace(g, rollouts=tuple(_labelled(r) for r in g.rollouts)) for g in groups
    ]


def _labelled(rollout: Rollout) -> Rollout:
    return replace(
        rollout,
        segments=tuple(_label(s) if s.role == "model" else s for s in rollout.segments),
        info={**rollout.info, "off_policy": True},
    )


def _label(segment: Segment) -> Segment:
    if "expert" not in segment.extras:
        raise ValueError(
            "expert_actions: this world has no expert to ask: choose one with a function `expert` (control/calls), or leave the piece out"
        )
    return replace(segment, ids=np.asarray(segment.extras["expert"], dtype=np.int64))
