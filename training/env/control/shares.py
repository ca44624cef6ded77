"""A corridor whose ends pay two parties: who goes to one end leaves the other party without anything.

A world of several sources of reward for objectives that are no sum, such as the sum of the logarithms of the returns (proportional fairness,
Kelly 1997, "Charging and Rate Control for Elastic Traffic").

An agent begins in the middle of `length` cells and walks one cell at a time, or into a wall, for `steps` steps. Each step that ends in the first
cell pays the first party `first`, each that ends in the last one the second party `second`. Nothing is drawn: all chance is the policy's. The
observation is the place, as one of `length`. A policy that earns the most for both goes to either end half of the time and stays there. The reward is
the sum; `Step.rewards` has each. success: whether the poorer party got at least half of what the richer one got.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from training.env.control import Shape, Step, World

GIVES = ("success",)


@dataclass
class _State:
    at: int
    steps: int = 0
    paid: np.ndarray = field(default_factory=lambda: np.zeros(2))


@dataclass(frozen=True, kw_only=True)
class Shares:
    length: int
    steps: int
    pays: tuple[float, float]

    @property
    def shape(self) -> Shape:
        return Shape(observation=self.length, actions=2)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        state = _State(self.length // 2)
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        state.steps += 1
        state.at = min(max(state.at + (1 if action else -1), 0), self.length - 1)
        paid = np.array([self.pays[0] * (state.at == 0), self.pays[1] * (state.at == self.length - 1)])
        state.paid = state.paid + paid
        over = state.steps >= self.steps
        fair = state.paid.max() > 0 and state.paid.min() >= 0.5 * state.paid.max()
        parts = {"success": float(fair)} if over else {}
        return Step(observation=self._seen(state), reward=float(paid.sum()), done=over, parts=parts, rewards=paid)

    def close(self, state: _State) -> None:
        pass

    def _seen(self, state: _State) -> np.ndarray:
        return np.eye(self.length)[state.at]


def shares(*, length: int = 5, steps: int = 20, first: float = 1.0, second: float = 1.0) -> World:
    """length: cells of the corridor, an odd number of 3 or more. steps: of an episode. first, second: what a step in the first cell pays the first
    party, and one in the last cell the second."""
    if length < 3 or length % 2 == 0 or steps < length or first <= 0 or second <= 0:
        raise ValueError(
            f"control/shares: length is {length}, steps {steps}, first {first} and second {second}: give an odd length of 3 or more, as many "
            "steps, and payments above 0"
        )
    return Shares(length=length, steps=steps, pays=(first, second))
