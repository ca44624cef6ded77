"""The policy begins again: the weights of the start are put back, and chosen rollouts are imitated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from training.learner.learner import Learner, nll
from training.learner.pack import pack, rollout_row
from training.types import Rollout


@dataclass(kw_only=True)
class Restart:
    """Made before the first step, since it copies the trained weights then; a resumed run makes it before it loads its
    checkpoint.

    learner   of one process
    sampler   its version is raised, so that a sampler which holds copies of the weights reads them again
    """

    learner: Learner
    sampler: Any
    temperature: float = 1.0
    tokens_per_microbatch: int = 16384
    device: str = "cpu"
    start: list[Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.start = self.learner.copied()

    def __call__(self, rollouts: Sequence[Rollout], passes: int, rows: int, rng: np.random.Generator) -> None:
        """Put the weights of the start back, forget what the optimizer has gathered, and take `passes` passes of the
        next-token loss over the rollouts, at most `rows` an update, in an order drawn anew for each pass. The learning
        rate is that of the step at hand, and the schedule does not move on."""
        learner, count = self.learner, self.learner.step_count
        learner.restart(self.start)
        told = [rollout_row(r, 0.0, i) for i, r in enumerate(rollouts)]
        for _ in range(passes if told else 0):
            order = rng.permutation(len(told))
            for part in np.array_split(order, -(-len(told) // rows)):
                learner.step(
                    pack([told[i] for i in part], device=self.device),
                    nll,
                    tokens_per_microbatch=self.tokens_per_microbatch,
                    temperature=self.temperature,
                )
                learner.step_count = count
        self.sampler.version += 1
