"""An environment of Gymnasium whose observations are numbers.

Towers et al. 2024, "Gymnasium: A Standard Interface for Reinforcement Learning Environments" (arXiv 2407.17032).

An observation of numbers is flattened, a discrete one becomes a one-hot vector; actions are discrete, or numbers, which
are clipped to their bounds before the environment sees them (the policy's log-prob is that of what it drew, as in
CleanRL). An episode ends where the environment says so, or where its time limit does: both end the return. Leaves out:
observations of several parts, bootstrapping with the value of the state at a time limit, and normalised observations
and rewards.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from training.env.control import Shape, Step, World

GIVES = ("late",)


class Gymnasium(World):
    def __init__(self, name: str, steps: int, module: str) -> None:
        try:
            self._gymnasium: Any = importlib.import_module("gymnasium")
        except ImportError as e:
            raise ValueError(
                "control/gymnasium needs Gymnasium: install it with `pip install 'espalier[games]'`, or choose another world"
            ) from e
        if module:
            importlib.import_module(module)
        self._name, self._steps = name, steps
        try:
            one = self._made()
        except self._gymnasium.error.Error as e:
            raise ValueError(
                f"control/gymnasium: {name!r} is no environment here ({e}): fix `id`, or name the `module` that registers it"
            ) from e
        spaces = self._gymnasium.spaces
        seen, acts = one.observation_space, one.action_space
        one.close()
        if not isinstance(seen, (spaces.Box, spaces.Discrete)) or not isinstance(acts, (spaces.Box, spaces.Discrete)):
            raise ValueError(
                f"control/gymnasium: {name} has observations {type(seen).__name__} and actions {type(acts).__name__}: only Box and Discrete "
                "are known; wrap it in an environment of your own that lays them flat"
            )
        self._seen, self._acts = seen, acts
        continuous = isinstance(acts, spaces.Box)
        self._kinds = int(seen.n) if isinstance(seen, spaces.Discrete) else 0
        self._shape = Shape(
            observation=self._kinds or int(np.prod(seen.shape)),
            actions=int(np.prod(acts.shape)) if continuous else int(acts.n),
            continuous=continuous,
        )

    @property
    def shape(self) -> Shape:
        return self._shape

    def _made(self) -> Any:
        return self._gymnasium.make(self._name, **({"max_episode_steps": self._steps} if self._steps else {}))

    def _vector(self, seen: Any) -> np.ndarray:
        if not self._kinds:
            return np.asarray(seen, dtype=np.float64).ravel()
        return np.eye(self._kinds)[int(seen) - int(self._seen.start)]

    def start(self, seed: int) -> tuple[Any, np.ndarray]:
        env = self._made()
        seen, _ = env.reset(seed=seed % 2**31)
        return env, self._vector(seen)

    def step(self, state: Any, action: Any) -> Step:
        if self._shape.continuous:
            did = np.clip(np.asarray(action).reshape(self._acts.shape), self._acts.low, self._acts.high)
            seen, reward, ended, late, _ = state.step(did.astype(self._acts.dtype))
        else:
            seen, reward, ended, late, _ = state.step(int(action) + int(self._acts.start))
        return Step(
            observation=self._vector(seen),
            reward=float(reward),
            done=bool(ended or late),
            parts={"late": float(late)} if ended or late else {},
        )

    def close(self, state: Any) -> None:
        state.close()


def gymnasium(*, id: str = "CartPole-v1", steps: int = 0, module: str = "") -> World:  # noqa: A002
    """id: the id of the environment. steps: its time limit, 0 for the environment's own. module: the module that
    registers it, if one must be imported."""
    return Gymnasium(id, steps, module)
