"""Worlds of numbers, one file each: an observation is a vector, an action an index or a vector, and nothing is said.

The policy that acts there is a small network (training/model/control.py); who plays is training/rollout/control.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class ControlPiece(Protocol):
    """Makes a world of numbers.

    Returns:
        an object with `shape`, `start(seed)`, `step(state, action)` and `close(state)`
    """

    def __call__(self) -> World: ...


@dataclass(frozen=True, kw_only=True)
class Shape:
    """observation: numbers that are seen at each step. actions: how many there are to choose from, or, where
    `continuous`, how many numbers an action has."""

    observation: int
    actions: int
    continuous: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """What an action led to. observation [shape.observation] is not read where `done`. parts: of the score, of the
    last step alone."""

    observation: np.ndarray
    reward: float
    done: bool
    parts: dict[str, float] = field(default_factory=dict)


class World(Protocol):
    """A world is stateless, as an environment of conversations is: an episode lives in the state of `start`.

    It may have a function `factors(seen, action) -> float64 [k]`: what is worth knowing of a step, which is then kept as
    the extra "factors" of its segment.
    """

    @property
    def shape(self) -> Shape: ...

    def start(self, seed: int) -> tuple[Any, np.ndarray]:
        """Begin the episode of a seed: its state, and the first observation."""
        ...

    def step(self, state: Any, action: Any) -> Step:
        """Act: an int, or float64 [shape.actions] where actions are continuous."""
        ...

    def close(self, state: Any) -> None:
        """End an episode, finished or not."""
        ...
