"""What stands between the gradient of a step and the optimizer: estimates made of more than this step's gradient, one file each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from training.learner.learner import Accumulated, Learner, Passes
from training.types import Batch


class GradientPiece(Protocol):
    """Makes an estimator of the gradient; the piece is a class whose only arguments are its knobs.

    Returns:
        the estimator, which puts an estimate of its own in the place of the gradient of a step

    Check gives:
        logits: of a policy without observations, which acts once
        batches: for each step its actions, and the rewards of each by source
        lr: of the plain steps between them

    Check expects:
        gradients: the estimate of each step, to be ascended
        returns: the estimated return of each source after each step
        logits: those after the last step
    """

    def __call__(self) -> Gradient: ...


class Gradient:
    """The hooks; by default each changes nothing.

    The advantages of a step are computed for each source of reward alone as well: columns["by_source"] [T, k] of
    the batch; the sum of columns["return_by_source"] [T, k] over a row is the return of each (training/rl/experience.py).
    """

    def prompts(self, step: int, usual: int) -> int:
        """How many problems a step plays, where the stage says `usual`."""
        return usual

    def gradient(self, learner: Learner, batch: Batch, passes: Passes) -> Accumulated:
        """Leave the estimate in the gradients of `learner.master`, which hold nothing, and return what the pass with the
        weights of now returned. The weights must be those of now when it returns or raises."""
        return passes.add(batch)

    def state(self) -> dict[str, Any]:
        """Everything that later steps depend on."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state."""
