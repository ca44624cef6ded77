"""Changes of groups after they were played: hints, demonstrations, replays. One file each; this file has what they
share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from synth.types import Message, Problem
from training.types import Group

if TYPE_CHECKING:
    from training.rl.rollout_services import RolloutServices


class GroupTransformPiece(Protocol):
    """Changes groups after they were played and before filters and rewards: hints, demonstrations, replays.

    Args:
        groups: the groups of one step, in order
        services: plays further rollouts and computes statistics of the policy (training/rl/rollout_services.py)
        state: a mapping of plain values and arrays that persists from step to step and is saved in checkpoints
        rng: the only source of randomness

    Returns:
        the same groups in the same order, with rollouts added or replaced; a rollout that the policy did not sample
            under the plain prompt is `off_policy`

    A module with SEVERAL = True works where several policies play (rl.policies): all that it adds was sampled by those who
    speak there.

    Check gives:
        rewards: per group a list of rewards; .nan is a rollout that could not be scored
        state: the piece's state before (empty)
        **rollouts: per group or rollout, the arguments of `groups` in tasks/lab/toy.py: lengths, entropies, parts,
            turns, steps, ...
        plays: a list of rewards for each further play that the piece requests, in order
        worth: the score of every text that the piece wants scored (1)

    Check expects:
        rewards: per group the rewards of its rollouts
        off_policy: per group, per rollout whether it is off-policy
        steps: per group, per rollout the rewards of its turns
        asked: every text that was used as a prompt or as an answer
    """

    def __call__(
        self, groups: Sequence[Group], services: RolloutServices, state: dict, rng: np.random.Generator
    ) -> list[Group]: ...


def nothing_right(group: Group, threshold: float = 0.0) -> bool:
    """Whether the group has scores, and none above the threshold."""
    r = group.rewards
    r = r[~np.isnan(r)]
    return bool(len(r)) and bool(r.max() <= threshold)


def demonstration(problem: Problem) -> list[str]:
    """The turns of a right answer: those in lineage["demonstration"] of the problem, else the reference answer
    alone."""
    return list(problem.lineage.get("demonstration", ())) or reference_answer(problem)


def reference_answer(problem: Problem) -> list[str]:
    """The reference answer as a turn."""
    return [f"<answer>{problem.answer}</answer>"]


def asked(problem: Problem, more: str) -> Problem:
    """The problem with a text appended to its last user message."""
    *before, last = problem.prompt
    return replace(problem, prompt=(*before, Message(role=last.role, content=last.content + more)))
