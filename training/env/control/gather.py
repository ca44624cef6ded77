"""Agents of one team on a grid that gather food and keep away from traps, with more things around after training than
ever while learning.

Koh et al. 2024, "FlickerFusion: Intra-trajectory Domain Generalizing Multi-Agent RL".

    N_k ~ uniform(low..high)           things of kind k (food, trap) in an episode; other numbers where `unseen`
    sees m_k of them                   at each step another random subset of each kind: m_k ~ uniform(1..N_k) while
                                       learning, min(N_k, high) where `unseen`, so that no observation is larger than
                                       those that the policy has learned from

    r_t = 1 for food, which is then gone, - 0.5 for a step into a trap; r is the team's

The agents act in turn, so one row of an episode holds the actions of all of them, and one policy plays each. The
observation is that of the agent whose turn it is: its position, the distances to the other agents, then a place for
each thing (whether there is one; its distance divided by the square of how many cells it is away), at another random place each
time; the places of food are before those of traps. Positions and distances are in units of the grid's size.

Without `flicker` an agent sees everything: the backbone alone, whose places beyond those of training are filled for
the first time where `unseen`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("eaten", "trapped")
_MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0), (0, 0))


@dataclass
class _State:
    agents: list[tuple[int, int]]
    things: tuple[list[tuple[int, int]], list[tuple[int, int]]]  # food, traps
    rng: np.random.Generator
    steps: int = 0
    eaten: int = 0
    trapped: int = 0
    first: int = field(init=False)

    def __post_init__(self) -> None:
        self.first = len(self.things[0])


class Gather(World):
    def __init__(
        self,
        size: int,
        steps: int,
        agents: int,
        learned: tuple[int, int],
        later: tuple[int, int],
        flicker: bool,
        unseen: bool,
    ):
        self._size, self._steps, self._agents = size, steps, agents
        self._learned, self._later, self._flicker, self._unseen = learned, later, flicker, unseen
        self._places = max(learned[1], later[1])

    @property
    def shape(self) -> Shape:
        return Shape(observation=2 * self._agents + 6 * self._places, actions=5)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng, n = np.random.default_rng(seed_for(seed, "gather")), self._size
        low, high = self._later if self._unseen else self._learned
        counts = rng.integers(low, high + 1, size=2)
        cells = [(int(c) // n, int(c) % n) for c in rng.permutation(n * n)[: self._agents + counts.sum()]]
        food = cells[self._agents : self._agents + counts[0]]
        state = _State(cells[: self._agents], (food, cells[self._agents + counts[0] :]), rng)
        return state, self._seen(state)

    def step(self, state: _State, action: int) -> Step:
        who, (dx, dy) = state.steps % self._agents, _MOVES[action]
        x, y = state.agents[who]
        to = (min(max(x + dx, 0), self._size - 1), min(max(y + dy, 0), self._size - 1))
        state.agents[who] = to
        state.steps += 1
        reward = 0.0
        food, traps = state.things
        if to in food:
            food.remove(to)
            state.eaten += 1
            reward = 1.0
        elif to in traps and action != 4:
            state.trapped += 1
            reward = -0.5
        over = not food or state.steps >= self._steps * self._agents
        parts = {"eaten": state.eaten / state.first, "trapped": float(state.trapped)} if over else {}
        return Step(observation=self._seen(state), reward=reward, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def _seen(self, state: _State) -> np.ndarray:
        who = state.steps % self._agents
        x, y = state.agents[who]
        far = lambda cell: ((cell[0] - x) / self._size, (cell[1] - y) / self._size)  # noqa: E731
        others = [v for i, cell in enumerate(state.agents) if i != who for v in far(cell)]
        near = lambda cell: np.array([cell[0] - x, cell[1] - y]) / max(1, abs(cell[0] - x) + abs(cell[1] - y)) ** 2  # noqa: E731
        places = np.zeros((2, self._places, 3))
        for kind, things in enumerate(state.things):
            n = len(things)
            if n and self._flicker:
                n = min(n, self._learned[1]) if self._unseen else int(state.rng.integers(1, n + 1))
            shown = state.rng.permutation(len(things))[:n]
            where = state.rng.permutation(self._places)[:n]
            for i, place in zip(shown, where, strict=True):
                places[kind, place] = 1.0, *near(things[i])
        return np.array([x / self._size, y / self._size, *others, *places.ravel()])


def gather(
    *,
    size: int = 7,
    steps: int = 12,
    agents: int = 2,
    learned: Sequence[int] = (1, 3),
    later: Sequence[int] = (6, 8),
    flicker: bool = True,
    unseen: bool = False,
) -> World:
    """size: side of the grid. steps: the most steps of each agent. agents: how many there are. learned: the fewest and
    the most things of a kind. later: the same where `unseen`. flicker: whether an agent sees a random subset at each step.
    unseen: whether the numbers are those of `later`; a policy is measured with them."""
    for name, (low, high) in (("learned", learned), ("later", later)):
        if not 1 <= low <= high:
            raise ValueError(
                f"control/gather: {name} is {[low, high]}: give the fewest and the most things of a kind, from 1"
            )
    if agents < 1 or size * size < agents + 2 * max(learned[1], later[1]):
        raise ValueError(
            f"control/gather: {agents} agents and {2 * max(learned[1], later[1])} things do not fit on {size} x {size} cells: "
            "make the grid larger, and let there be an agent"
        )
    return Gather(size, steps, agents, tuple(learned), tuple(later), flicker, unseen)  # type: ignore[arg-type]
