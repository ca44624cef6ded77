"""A grid with a key, a locked door and a goal: the reward comes once, at the goal, so random actions hardly ever find
it.

A wall with one door divides a square grid into two rooms. Walking onto the key takes it, walking into the door with the
key opens it, and the goal lies behind it. A teacher, if one is set, names sub-goals (the key, the door, the goal), one
at a time: Ruiz-Gonzalez et al. 2024, "Words as Beacons: Guiding RL Agents with High-Level Language Prompts" (arXiv
2410.08632), of which the abstract was read.

    r_t = 1 where the goal is reached + bonus where the current sub-goal is reached

The teacher is simulated: each sub-goal is right with probability 1 - error_rate and otherwise a random cell. The
sub-goal is part of the observation: as a position (its distance), or as an object (which of the three it is). `absent`
is the share of episodes without a teacher, so that the policy learns to act without one.

The observation has 21 numbers: the position; the distances to key, door and goal; whether the key is held, the door is
open, the goal reached; which of the four neighbours can be entered; then the sub-goal: whether there is one, its
distance, which object. Distances are in units of the grid's size.

`factors` says for a step how far it moved towards the key, the door or the goal, whichever is next, and whether it
reached it: the features that a language model would name if it knew the rules (reward decomposition reads them).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("success", "stage")
NEXT, NEAR = 8, 11  # indices of the observation: what was done (key, door, goal), and which neighbours can be entered
_MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
Teacher = Literal["none", "position", "object"]


@dataclass
class _State:
    at: tuple[int, int]
    key: tuple[int, int]
    door: tuple[int, int]
    goal: tuple[int, int]
    subgoals: list[tuple[tuple[int, int], int]] = field(default_factory=list)  # cell, and which of the three it is
    held: bool = False
    open: bool = False
    done: bool = False
    steps: int = 0


class KeyDoor(World):
    def __init__(self, size: int, steps: int, teacher: Teacher, bonus: float, error: float, absent: float, ends: bool):
        self._size, self._steps, self._ends = size, steps, ends
        self._teacher, self._bonus, self._error, self._absent = teacher, bonus, error, absent

    @property
    def shape(self) -> Shape:
        return Shape(observation=21, actions=4)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng, n = np.random.default_rng(seed_for(seed, "key_door")), self._size
        wall = int(rng.integers(2, n - 2))
        cell = lambda lo, hi: (int(rng.integers(lo, hi)), int(rng.integers(n)))  # noqa: E731
        at = cell(0, wall)
        key = cell(0, wall)
        while key == at:
            key = cell(0, wall)
        state = _State(at=at, key=key, door=(wall, int(rng.integers(n))), goal=cell(wall + 1, n))
        if self._teacher != "none" and rng.random() >= self._absent:
            for i, true in enumerate((state.key, state.door, state.goal)):
                wrong = rng.random() < self._error
                state.subgoals.append((cell(0, n), int(rng.integers(3))) if wrong else (true, i))
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        state.steps += 1
        reward = 0.0
        if not state.done:
            to = (state.at[0] + _MOVES[action][0], state.at[1] + _MOVES[action][1])
            if to == state.door and state.held:
                state.open = True
            if self._free(state, to):
                state.at = to
            state.held |= state.at == state.key
            if state.subgoals and self._reached(state):
                state.subgoals.pop(0)
                reward += self._bonus
            if state.at == state.goal:
                state.done = True
                reward += 1.0
        over = state.steps >= self._steps or (state.done and self._ends)
        stage = float(state.held) + float(state.open) + float(state.done)
        parts = {"success": float(state.done), "stage": stage} if over else {}
        return Step(observation=self._seen(state), reward=reward, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def factors(self, seen: np.ndarray, action: int) -> np.ndarray:
        """[6]: by how many cells the step came nearer to the key, the door, the goal (only the one that is next
        counts); then whether each was reached."""
        out = np.zeros(6)
        i = int(seen[NEXT : NEXT + 3].sum())
        if i < 3:
            far = np.rint(seen[2 + 2 * i : 4 + 2 * i] * self._size)
            after = far - _MOVES[action]
            if not seen[NEAR + action] and not (i == 1 and not after.any()):
                after = far
            out[i] = np.abs(far).sum() - np.abs(after).sum()
            out[3 + i] = float(not after.any())
        return out

    def _reached(self, state: _State) -> bool:
        cell, which = state.subgoals[0]
        if self._teacher == "object":
            return (state.held, state.open, state.at == state.goal)[which]
        return state.at == cell

    def _free(self, state: _State, cell: tuple[int, int]) -> bool:
        x, y = cell
        return (
            0 <= x < self._size and 0 <= y < self._size and (x != state.door[0] or (cell == state.door and state.open))
        )

    def _seen(self, state: _State) -> np.ndarray:
        (x, y), n = state.at, self._size
        far = lambda cell: ((cell[0] - x) / n, (cell[1] - y) / n)  # noqa: E731
        told = np.zeros(6)
        if state.subgoals:
            cell, which = state.subgoals[0]
            told[0] = 1.0
            if self._teacher == "position":
                told[1:3] = far(cell)
            else:
                told[3 + which] = 1.0
        near = [float(self._free(state, (x + a, y + b))) for a, b in _MOVES]
        places = [v for cell in (state.key, state.door, state.goal) for v in far(cell)]
        did = map(float, (state.held, state.open, state.done))
        return np.array([x / n, y / n, *places, *did, *near, *told])


def key_door(
    *,
    size: int = 8,
    steps: int = 80,
    teacher: Teacher = "none",
    bonus: float = 0.2,
    error_rate: float = 0.1,
    absent: float = 0.5,
    ends: bool = True,
) -> World:
    """size: side of the grid, 5 or more. steps: the most steps of an episode. teacher: none, or how it names a
    sub-goal. bonus: reward for a sub-goal. error_rate: share of wrong sub-goals. absent: share of episodes without a
    teacher. ends: whether the goal ends the episode; otherwise the agent stays there until `steps` are over."""
    if size < 5:
        raise ValueError(f"control/key_door: size is {size}: two rooms and a wall need 5 or more")
    if teacher not in ("none", "position", "object"):
        raise ValueError(f"control/key_door: teacher is {teacher!r}: it is none, position or object")
    if not 0 <= bonus * 3 < 1 or math.isnan(bonus):
        raise ValueError(
            f"control/key_door: bonus is {bonus}: three sub-goals must be worth less than the goal, so below 1/3"
        )
    return KeyDoor(size, steps, teacher, bonus, error_rate, absent, ends)


def scripted(seed: int, size: int) -> np.ndarray:
    """[n, 21] the observations of a play that goes straight to the key, the door and the goal, the last one behind the goal."""
    world = KeyDoor(size, 10 * size, "none", 0.0, 0.0, 0.0, True)
    state, seen = world.start(seed)
    out = [seen]
    while not state.done:
        x, y = next(
            cell
            for cell, reached in ((state.key, state.held), (state.door, state.open), (state.goal, False))
            if not reached
        )
        across, along = x - state.at[0], y - state.at[1]
        # Rows first, since the door is entered from the side; but out of the door only to the side.
        rows = along != 0 and state.at[0] != state.door[0]
        out.append(world.step(state, (2 if along > 0 else 0) if rows else (1 if across > 0 else 3)).observation)
    return np.stack(out)
