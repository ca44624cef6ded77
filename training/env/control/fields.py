"""A grid without an end: a field pays each time it is reached, and the agent goes on from a random place.

The sparse world of Suttle et al. 2023, "Beyond Exponentially Fast Mixing in Average-Reward Reinforcement Learning via
Multi-Level Monte Carlo Actor-Critic" (MAC, arXiv 2301.12083), and the lengths of its plays.

    r_t = 1 where the paying field (the last corner) is reached, and the agent is then somewhere else; otherwise 0

    random      2^J + 1 steps, J ~ geometric(1/2); 2 steps if 2^J > most     the multi-level play: 6.016 + 1 on average for
                                                                              most = 64
    otherwise   most + 1 steps

A play begins where the seed says, in the half of the grid that is away from the field (a play that begins at the field
would show nothing of how far it is). One step more than counts is played, since the last one has no next state.

The observation: the position in units of the grid's size, then one number for each column and each row, 1 for the
agent's. `unseen` plays of `long` steps measure the average reward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("rate",)
_MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))


@dataclass
class _State:
    at: tuple[int, int]
    left: int
    rng: np.random.Generator
    steps: int = 0
    total: float = 0.0


class Fields(World):
    def __init__(self, size: int, most: int, random: bool, unseen: bool, long: int):
        self._size, self._most, self._random, self._unseen, self._long = size, most, random, unseen, long

    @property
    def shape(self) -> Shape:
        return Shape(observation=2 + 2 * self._size, actions=4)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng, n = np.random.default_rng(seed_for(seed, "fields")), self._size
        at = (int(rng.integers(n)), int(rng.integers(n)))
        while sum(at) >= n - 1:
            at = (int(rng.integers(n)), int(rng.integers(n)))
        level = int(rng.geometric(0.5))
        counted = 2**level if 2**level <= self._most else 1
        steps = self._long if self._unseen else (counted if self._random else self._most) + 1
        state = _State(at, steps, rng)
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        n, (dx, dy) = self._size, _MOVES[action]
        state.at = (min(max(state.at[0] + dx, 0), n - 1), min(max(state.at[1] + dy, 0), n - 1))
        reward = 0.0
        if state.at == (n - 1, n - 1):
            reward = 1.0
            cell = int(state.rng.integers(n * n - 1))
            state.at = (cell // n, cell % n)
        state.steps, state.left, state.total = state.steps + 1, state.left - 1, state.total + reward
        over = state.left <= 0
        parts = {"rate": state.total / state.steps} if over else {}
        return Step(observation=self._seen(state), reward=reward, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def _seen(self, state: _State) -> np.ndarray:
        eye, (x, y) = np.eye(self._size), state.at
        return np.concatenate([[x / self._size, y / self._size], eye[x], eye[y]])


def fields(*, size: int = 6, most: int = 64, random: bool = True, unseen: bool = False, long: int = 200) -> World:
    """size: side of the grid. most: the most steps of a play that count, a power of 2 where `random`. random: whether
    lengths are those of multi-level plays. unseen: whether a play has `long` steps, to measure a policy."""
    if size < 2 or most < 1 or long < 1:
        raise ValueError(
            f"control/fields: size {size}, most {most} and long {long}: a grid has 2 cells a side or more, a play a step"
        )
    if random and most & (most - 1):
        raise ValueError(f"control/fields: most is {most}: random lengths are powers of 2, so give one")
    return Fields(size, most, random, unseen, long)
