"""What one method changes of preference optimisation, beside its loss: one file per rule, named in `prefer.update_rules`.

A piece is a class named as its file, made of its knobs, that overrides the hooks of `UpdateRule` it needs. Rules act in
the order in which they are listed. PROVIDES of a file names what a loss or ratio may then need (NEEDS).
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
from training.types import Batch, Rollout

Worth = Callable[[float, Rollout], float]  # what a rollout is worth, and the rollout -> what it is worth by this rule


@dataclass(frozen=True, kw_only=True)
class OfflineRound:
    """One round over cleaned pairs.

    index      of the round, from 0
    source     its batches
    units      step -> the units of the step: (chosen row, rejected row, problem or None)
    sampled    the `SampledPairs` that may play problems, None where the stage made none
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
    """Makes an update rule; the piece is a class that is made without arguments but its knobs.

    Returns:
        what one method changes of preference optimisation beside its loss
    """

    def __call__(self) -> UpdateRule: ...


class UpdateRule:
    """The hooks, each of which changes nothing here. A rule with a state overrides `state` and `load_state` too.

    starts_equal  False where policy and reference are not the same model at the first step
    gives         columns of pairs that the rule makes, so that the cleaned pairs need not bring them
    """

    starts_equal: bool = True
    gives: frozenset[str] = frozenset()

    def change_reference(self, reference: nn.Module | None, load: Callable[[str], nn.Module]) -> None:
        """Before anything is trained: may change the reference in place. load(name) gives a model by its folder, or by
        "base", the model that SFT began with."""

    def rows(self, policy: nn.Module, rows: list[Row]) -> list[Row]:
        """The rows of a unit of cleaned pairs, chosen and rejected by turns, before the first round that uses them."""
        return rows

    def asked(
        self, problems: Sequence[Problem], rng: np.random.Generator, player: Player
    ) -> list[tuple[Problem, Worth]]:
        """Of the problems of a step that is sampled: what is asked, and what a rollout is worth then. rng is that of the
        step."""
        return [(p, lambda value, rollout: value) for p in problems]

    def compared(self, rollouts: Sequence[Rollout]) -> tuple[int, int] | None:
        """Which two of the rollouts of a prompt (two at least, in the order in which they were drawn) are compared; None
        leaves the best against the worst."""
        return None

    def learned(self, better: Rollout, worse: Rollout) -> None:
        """What came of that comparison."""

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
        """What the steps to come depend on."""
        return {}

    def load_state(self, state: Mapping[str, Any], learner: Learner) -> None:
        """Back to a state."""
