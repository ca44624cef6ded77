"""Worlds of numbers, one file each: an observation is a vector, an action an index or a vector, and there is no text.

The policy is a small network (training/model/control.py); training/rollout/control.py plays the episodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


class ControlPiece(Protocol):
    """Makes a world of numbers.

    Returns:
        an object with `shape`, `start(seed)`, `step(state, action)` and `close(state)`

    Check gives:
        state: attributes of the state after its start, to be set: a list stands for a tuple if the attribute is one
        actions: what is done in turn

    Check expects:
        rewards: of each step
        seen: the observation after the last step
        parts: those of the score that the last step gave
        done: whether the episode was over
    """

    def __call__(self) -> World: ...


@dataclass(frozen=True, kw_only=True)
class Shape:
    """observation: how many numbers the policy sees at each step. actions: how many actions there are to choose from,
    or, if `continuous`, how many numbers an action has."""

    observation: int
    actions: int
    continuous: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """The result of an action. observation [shape.observation] is not read if `done`. parts: parts of the score, given
    by the last step only. rewards [k]: the reward by source, in a world of several; their sum is `reward`."""

    observation: np.ndarray
    reward: float
    done: bool
    parts: dict[str, float] = field(default_factory=dict)
    rewards: np.ndarray | None = None


class World(Protocol):
    """A world is stateless, like an environment of conversations: the state that `start` returns holds the episode.

    It may have a function `factors(seen, action) -> float64 [k]`: features of a step, which are stored as the extra
    "factors" of its segment; and a function `expert(seen) -> int`, the right action, which is stored as the extra "expert".
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
