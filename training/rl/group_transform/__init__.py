"""Changes of groups after they were played: hints, demonstrations, replays. One file each, and what they share."""

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
        services: plays further rollouts and answers questions about the policy (training/rl/rollout_services.py)
        state: a mapping of plain values and arrays that lasts from step to step and survives a checkpoint
        rng: the only source of chance

    Returns:
        the same groups in the same order, with rollouts added or replaced; one that the policy did not write under
            the plain prompt is `off_policy`

    Check gives:
        rewards: per group a list of rewards; .nan is a rollout that could not be scored
        state: what the piece remembers (empty)
        **rollouts: per group or rollout, what tasks/lab/toy.py `groups` takes: lengths, entropies, parts, turns,
            steps, ...
        plays: a list of rewards for each further play that the piece asks for, in order
        worth: the score of every text that the piece asks to have scored (1)

    Check expects:
        rewards: per group the rewards of its rollouts
        off_policy: per group, per rollout whether another than the policy wrote it
        steps: per group, per rollout the rewards of its turns
        asked: every text that was asked or said
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
    """The turns of a right answer: those that the problem's maker left in lineage["demonstration"], else the reference
    answer alone."""
    return list(problem.lineage.get("demonstration", ())) or reference_answer(problem)


def reference_answer(problem: Problem) -> list[str]:
    """The reference answer as a turn."""
    return [f"<answer>{problem.answer}</answer>"]


def asked(problem: Problem, more: str) -> Problem:
    """The problem with a text added to its last message of the user."""
    *before, last = problem.prompt
    return replace(problem, prompt=(*before, Message(role=last.role, content=last.content + more)))
