"""Observations: what pieces need besides the rollouts themselves. One file per observation; a piece asks for one by
its name in NEEDS, and one that serves a single piece may be that piece's own function `observe`.

A constant OBSERVES of the file says what is observed: "groups" (the default), "problems" or "batch". Each has its own
arguments and result: `ObservationPiece`, `ProblemsObservationPiece`, `BatchObservationPiece`. The result of an
observation of groups goes into the parts of the scores (`with_parts`), into extras of segments (`with_extra`), which
become columns of the batch, or into `group.greedy`.

No observation draws from the step's random generator, so adding one changes nothing for other pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from synth.types import Problem, Scored
from training.rollout.play import Player
from training.types import Batch, Group, Rollout, Segment


class ObservationPiece(Protocol):
    """Observes groups after they were played and transformed, before filters and rewards.

    Args:
        player: plays and samples with the policy
        groups: the groups of one step, in order
        problems: the problem that was drawn for each group
        seed: parts that are hashed, with a name, into the seeds of further plays

    Returns:
        the same groups with the results added
    """

    def __call__(
        self, player: Player, groups: Sequence[Group], problems: Sequence[Problem], seed: tuple[Any, ...]
    ) -> list[Group]: ...


class ProblemsObservationPiece(Protocol):
    """Observes the problems once, before the first are drawn.

    Args:
        player: plays and samples with the policy
        problems: all problems of the training split

    Returns:
        a plain value that becomes state[name of the observation] of each piece that needs it
    """

    def __call__(self, player: Player, problems: Sequence[Problem]) -> Any: ...


class BatchObservationPiece(Protocol):
    """Observes the batch of a whole step, after `prepare` of all pieces.

    Args:
        batch: the rows; the results are added to its columns
        logp: the policy's log-probs [T] of a batch, without gradient, at the temperature of sampling

    Returns:
        nothing
    """

    def __call__(self, batch: Batch, logp: Callable[[Batch], Tensor]) -> None: ...


def observations(pieces: Iterable[Any], observes: str) -> list[Callable[..., Any]]:
    """The observations of the pieces ("groups", "problems" or "batch"), each once, in the order of the pieces."""
    unique: dict[Any, Callable[..., Any]] = {}
    for piece in pieces:
        for one in getattr(piece, "observations", ()):
            if one.observes == observes:
                unique.setdefault((one.piece, repr(one.keywords)), one)
    return list(unique.values())


def with_parts(rollout: Rollout, parts: dict[str, float]) -> Rollout:
    """The rollout with more parts in its score; an unscorable one stays as it is."""
    if not isinstance(rollout.score, Scored):
        return rollout
    return replace(rollout, score=replace(rollout.score, parts={**rollout.score.parts, **parts}))


def with_extra(rollout: Rollout, name: str, values: Callable[[Segment, int], np.ndarray]) -> Rollout:
    """values(segment, how many tokens the model wrote before it) as an extra of each segment that the model wrote."""
    segments, at = [], 0
    for s in rollout.segments:
        if s.role == "model":
            segments.append(replace(s, extras={**s.extras, name: values(s, at)}))
            at += len(s.ids)
        else:
            segments.append(s)
    return replace(rollout, segments=tuple(segments))
