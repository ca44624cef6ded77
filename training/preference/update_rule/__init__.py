"""Changes to preference optimisation, besides the loss, that a method makes: one file per rule, named in
`prefer.update_rules`.

A piece is a class named as its file; its arguments are its knobs, and it overrides the hooks of `UpdateRule` that it
needs. Rules act in the order in which they are listed. PROVIDES in a file names what a loss or ratio may then need
(NEEDS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from synth.types import Problem
from training.learner.learner import Learner
from training.learner.loop import Source
from training.learner.pack import Row
from training.rollout.play import Player
from training.types import Batch, Group, Rollout

Worth = Callable[[float, Rollout], float]  # (value of a rollout, rollout) -> its value by this rule


@dataclass(frozen=True, kw_only=True)
class OfflineRound:
    """One round over cleaned pairs.

    index      of the round, from 0
    source     its batches
    units      step -> the units of the step: (chosen row, rejected row, problem or None)
    sampled    the `SampledPairs` that may play problems; None if the stage has none
    loss       the preference loss with its knobs
    """

    index: int
    source: Source
    units: Callable[[int], Sequence[tuple[Row, Row, Problem | None]]]
    sampled: Any
    loss: Any
    policy: nn.Module
    reference: nn.Module | None
    seed: int
    tokens_per_microbatch: int = 16384


class UpdateRulePiece(Protocol):
    """Makes an update rule; the piece is a class whose only arguments are its knobs.

    Returns:
        the changes that a method makes to preference optimisation, besides its loss
    """

    def __call__(self) -> UpdateRule: ...


class UpdateRule:
    """The hooks; by default each changes nothing. A rule with a state overrides `state` and `load_state` too.

    starts_equal  False if policy and reference are not the same model at the first step
    gives         columns of pairs that the rule computes, so that the cleaned pairs need not have them
    """

    starts_equal: bool = True
    gives: frozenset[str] = frozenset()

    def change_reference(self, reference: nn.Module | None, load: Callable[[str], nn.Module]) -> None:
        """Called before training: may change the reference in place. load(name) gives a model by its folder, or by
        "base", the model that SFT began with."""

    def rows(self, policy: nn.Module, rows: list[Row]) -> list[Row]:
        """The rows of a unit of cleaned pairs, chosen and rejected alternating, before the first round that uses
        them."""
        return rows

    def asked(
        self, problems: Sequence[Problem], rng: np.random.Generator, player: Player
    ) -> list[tuple[Problem, Worth]]:
        """For the problems of a sampled step: the prompts to play, and the value of a rollout. rng is that of the
        step."""
        return [(p, lambda value, rollout: value) for p in problems]

    def played(
        self, problems: Sequence[Problem], groups: Sequence[Group], player: Player, seed: Sequence[Any]
    ) -> Sequence[Group]:
        """The rollouts of a sampled step, one group a problem; may draw others in their place. seed: what the seeds of the step are made of."""
        return groups

    def compared(self, rollouts: Sequence[Rollout]) -> tuple[int, int] | None:
        """Which two of the rollouts of a prompt (at least two, in the order in which they were drawn) are compared;
        None keeps the best against the worst."""
        return None

    def learned(self, better: Rollout, worse: Rollout) -> None:
        """Receives the result of that comparison."""

    def source(self, round_: OfflineRound) -> Source:
        """The source of a round over cleaned pairs."""
        return round_.source

    def begin(self, i: int, learner: Learner) -> None:
        """Round i begins: before its first step, and before its reference is renewed."""

    def observe(
        self, batch: Batch, reference: nn.Module | None, logp: Callable[[nn.Module | None, Batch], Tensor]
    ) -> None:
        """May add columns (batch.add) to the whole step. logp(model, batch) [T]: log-probs without gradient, 0 where a token
        is not trained on."""

    def state(self) -> dict[str, Any]:
        """Everything that later steps depend on."""
        return {}

    def load_state(self, state: Mapping[str, Any], learner: Learner) -> None:
        """Restore a state."""
