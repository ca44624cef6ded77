"""Training in several processes on the rollouts of one of them: the first plays, scores and packs a step, and sends the
batch to the others.

It sends the vectors of a step, tokens and numbers per token: a conversation is played once, wherever it is sampled, and
no piece needs to know about other processes. A critic learns after the play and before the policy's batches, so its
batch is sent when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from training.learner.loop import Source
from training.learner.pack import to
from training.learner.world import World
from training.types import Batch

POLICY, CRITIC = "policy", "critic"


def send(world: World, role: str, batches: Sequence[Batch], metrics: Mapping[str, float] = {}) -> None:
    """Called by the first process before `role` learns from these batches."""
    if world.size > 1:
        world.share((role, [to(replace(b), "cpu") for b in batches], dict(metrics)))


@dataclass(frozen=True, kw_only=True)
class Followed:
    """The source of the first process: the others get the batches that it gives. publish: what all processes do before
    it plays, to bring it the weights of which each holds a share."""

    source: Source
    world: World
    publish: Callable[[], None] = lambda: None

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        self.publish()
        batches, metrics = self.source(step)
        batches = list(batches)
        send(self.world, POLICY, batches, metrics)
        return batches, metrics


@dataclass(frozen=True, kw_only=True)
class Following:
    """The source of every other process. beside: role -> what that role does with a batch that comes before the
    policy's."""

    world: World
    beside: Mapping[str, Callable[[Batch], Any]]
    device: str
    publish: Callable[[], None] = lambda: None

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        self.publish()
        while True:
            role, batches, metrics = self.world.share(None)
            batches = [to(b, self.device) for b in batches]
            if role == POLICY:
                return batches, metrics
            for batch in batches:
                self.beside[role](batch)


def followed(
    source: Source,
    world: World,
    device: str,
    beside: Mapping[str, Callable[[Batch], Any]] = {},
    publish: Callable[[], None] = lambda: None,
) -> Source:
    """Wrap a source that only the first process may call, so that every process can use it."""
    if world.size == 1:
        return source
    if world.first:
        return Followed(source=source, world=world, publish=publish)
    return Following(world=world, beside=beside, device=device, publish=publish)
