"""A grid with walls and several goals that must all be visited, played flat or in two levels.

"ReProHRL: Towards Multi-Goal Navigation in the Real World using Hierarchical Agents", 2023 (arXiv 2308.08737), of which
the abstract was read; the rest is our reading.

    flat         an action is a move; the policy sees all goals
    two levels   the high level sees all goals and names the next one; the low level sees that one alone and moves until
                 it is there or `patience` moves are over; then the high level is asked again

    r_t = 1 where a goal is first visited (of two levels: the one that was named), - collision for a move against a wall

What is seen comes from a detector, never from pixels: `noise` is the share of its numbers (where a goal is, whether a
neighbour is free) that are wrong, each step anew.

The observation: whether the high level is asked; the four neighbours that can be entered; for each goal its distance
and whether it was visited; the distance to the goal that was named (0 where none is). Distances are in units of the
grid's size. At the high level the neighbours are hidden, at the low level all goals but the one that was named. Naming a
visited goal, or none, costs a step. `group_transform/levels` makes rows of their own of what each level did.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("success", "stage")
HIGH = 0  # index of the observation: 1 where the high level is asked
_MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
_COLLISION = 0.05


@dataclass
class _State:
    at: tuple[int, int]
    goals: list[tuple[int, int]]
    walls: set[tuple[int, int]]
    rng: np.random.Generator
    visited: set[int] = field(default_factory=set)
    named: int = -1
    left: int = 0  # moves of the low level before the high level is asked again
    steps: int = 0


class Goals(World):
    def __init__(self, size: int, goals: int, walls: float, steps: int, levels: int, patience: int, noise: float):
        self._size, self._goals, self._walls, self._steps = size, goals, walls, steps
        self._levels, self._patience, self._noise = levels, patience, noise

    @property
    def shape(self) -> Shape:
        return Shape(observation=7 + 3 * self._goals, actions=max(4, self._goals))

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng, n = np.random.default_rng(seed_for(seed, "goals")), self._size
        while True:
            walls = {(int(x), int(y)) for x, y in np.argwhere(rng.random((n, n)) < self._walls)}
            free = [(x, y) for x in range(n) for y in range(n) if (x, y) not in walls]
            if len(free) <= self._goals:
                continue
            at, *goals = (free[i] for i in rng.permutation(len(free))[: self._goals + 1])
            state = _State(at, goals, walls, rng)
            if set(goals) <= self._reached(state):
                return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        state.steps += 1
        reward = 0.0
        if self._levels == 2 and state.named < 0:
            if action < self._goals and action not in state.visited:
                state.named, state.left = action, self._patience
        else:
            to = (state.at[0] + _MOVES[action % 4][0], state.at[1] + _MOVES[action % 4][1])
            if self._free(state, to):
                state.at = to
            else:
                reward -= _COLLISION
            state.left -= 1
            sought = range(self._goals) if self._levels == 1 else (state.named,)
            for i in sought:
                if state.goals[i] == state.at and i not in state.visited:
                    state.visited.add(i)
                    state.left = 0
                    reward += 1.0
            if state.left <= 0:
                state.named = -1
        over = len(state.visited) == self._goals or state.steps >= self._steps
        won = float(len(state.visited) == self._goals)
        parts = {"success": won, "stage": float(len(state.visited))} if over else {}
        return Step(observation=self._seen(state), reward=reward, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def _reached(self, state: _State) -> set[tuple[int, int]]:
        """All cells that can be reached from where the agent is."""
        reached, ahead = {state.at}, [state.at]
        for x, y in ahead:
            for dx, dy in _MOVES:
                to = (x + dx, y + dy)
                if to not in reached and self._free(state, to):
                    reached.add(to)
                    ahead.append(to)
        return reached

    def _free(self, state: _State, cell: tuple[int, int]) -> bool:
        return 0 <= cell[0] < self._size and 0 <= cell[1] < self._size and cell not in state.walls

    def _seen(self, state: _State) -> np.ndarray:
        (x, y), n = state.at, self._size
        high = self._levels == 2 and state.named < 0
        near = np.array([float(self._free(state, (x + dx, y + dy))) for dx, dy in _MOVES])
        far = np.array([((gx - x) / n, (gy - y) / n) for gx, gy in state.goals])
        if self._noise:
            near = np.where(state.rng.random(4) < self._noise, 1 - near, near)
            wrong = state.rng.random(len(far)) < self._noise
            far = np.where(wrong[:, None], state.rng.uniform(-1, 1, far.shape), far)
        goals = np.array([[*far[i], float(i in state.visited)] for i in range(self._goals)])
        named = far[state.named] if state.named >= 0 else np.zeros(2)
        if self._levels == 2:
            near, goals = (near * 0, goals) if high else (near, goals * 0)
        return np.concatenate([[float(high)], near, goals.ravel(), named])


def goals(
    *,
    size: int = 7,
    goals: int = 3,
    walls: float = 0.15,
    steps: int = 60,
    levels: int = 2,
    patience: int = 20,
    noise: float = 0.0,
) -> World:
    """size: side of the grid. goals: how many must be visited. walls: share of cells that are walls. steps: the most
    steps of an episode, those of both levels counted. levels: 1 is flat. patience: the most moves towards a named goal.
    noise: share of the detector's numbers that are wrong."""
    if levels not in (1, 2):
        raise ValueError(f"control/goals: levels is {levels}: it is 1, flat, or 2")
    if not 0 <= walls <= 0.4 or goals < 1 or size * size * (1 - walls) < 2 * (goals + 1):
        raise ValueError(
            f"control/goals: {goals} goals on {size} x {size} cells with {walls:.0%} walls: use walls of 0 to 0.4, one goal or "
            "more, and a grid on which they fit twice"
        )
    return Goals(size, goals, walls, steps, levels, patience, noise)
