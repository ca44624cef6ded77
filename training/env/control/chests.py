"""A corridor with a chest at each end: what the left one holds goes to one of two sources, and nobody knows to which.

A world of several sources of reward whose returns depend on each other, after the mazes with exclusive rewards of Zhang et al. 2021,
"Distributional Reinforcement Learning for Multi-Dimensional Reward Functions" (MD3QN, arXiv 2110.13578).

    left chest     (1, 0) or (0, 1), with equal chance          right chest     (x, x),  x either `low` or `high`, with equal chance

so the two returns have correlation -1 on the left and +1 on the right. The coins are thrown when an episode begins and are never shown. An
agent begins anywhere between the chests and walks one cell at a time. The observation is its place, as one of `length`. The reward is the sum over
the sources; `Step.rewards` has each. The policy is one of particles (training/model/particles.py). success: whether the left chest was opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("success",)


@dataclass
class _State:
    at: int
    first: bool  # whether the left chest pays the first source
    right: float
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Chests:
    length: int
    steps: int
    pays: tuple[float, float]
    sizes: dict[str, Any]
    network: str = "particles"
    hidden: int = 64

    @property
    def shape(self) -> Shape:
        return Shape(observation=self.length, actions=2)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng = np.random.default_rng(seed_for(seed, "chests"))
        state = _State(
            int(rng.integers(1, self.length - 1)), bool(rng.random() < 0.5), self.pays[int(rng.random() < 0.5)]
        )
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        state.steps += 1
        state.at += 1 if action else -1
        paid = np.zeros(2)
        if state.at == 0:
            paid[0 if state.first else 1] = 1.0
        elif state.at == self.length - 1:
            paid[:] = state.right
        over = state.at in (0, self.length - 1) or state.steps >= self.steps
        parts = {"success": float(state.at == 0)} if over else {}
        return Step(observation=self._seen(state), reward=float(paid.sum()), done=over, parts=parts, rewards=paid)

    def close(self, state: _State) -> None:
        pass

    def _seen(self, state: _State) -> np.ndarray:
        return np.eye(self.length)[state.at]


def chests(
    *,
    length: int = 7,
    steps: int = 40,
    low: float = 0.0,
    high: float = 0.8,
    particles: int = 32,
    heat: float = 0.05,
    hidden: int = 64,
) -> World:
    """length: cells of the corridor, 3 or more. steps: the most steps of an episode. low, high: what the right chest pays each source. particles,
    heat, hidden: of the policy: samples of the return of each action, how random it is, and the width of its network."""
    if length < 3 or steps < 1:
        raise ValueError(
            f"control/chests: length is {length} and steps {steps}: a corridor has 3 cells or more, an episode a step"
        )
    if particles < 2 or heat <= 0:
        raise ValueError(
            f"control/chests: particles is {particles} and heat {heat}: give 2 particles or more, and a heat above 0"
        )
    sizes = {"sources": 2, "particles": particles, "heat": heat}
    return Chests(length=length, steps=steps, pays=(low, high), sizes=sizes, hidden=hidden)
