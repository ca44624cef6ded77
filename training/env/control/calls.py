"""A chain of tool calls in which a wrong one leaves a fault that has to be undone before anything else works.

A world whose mistakes compound, for the argument of Ross and Bagnell 2010, "Efficient Reductions for Imitation Learning" (AISTATS), and
Ross, Gordon and Bagnell 2011 (DAgger, arXiv 1011.0686).

    request q, no fault     the call of tool q is paid 1, and the next request is drawn; any other call leaves a fault: call a leaves fault a mod n
    fault f                 `undo f` (action n + f) repairs it, and q is asked again; anything else changes nothing

There are n tools and 2n actions; an episode has `steps` of them. A share `slips` of the actions of the policy comes out as another one, as
calls of tools fail in use. The expert is exact: he calls q where nothing is broken and undoes what is. In a share `driven` of the episodes
he acts himself, whatever the policy says, and a share `shown` of his actions comes out as another one; at 0 his demonstrations are
faultless, and whoever clones them never sees a fault. The observation says which tool is asked for (n numbers) and what is broken (n
numbers). success: whether the episode ended without a fault.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synth.types import seed_for
from training.env.control import Shape, Step, World

GIVES = ("success",)


@dataclass
class _State:
    rng: np.random.Generator
    request: int
    driven: bool
    fault: int = -1  # which tool's; -1: none
    steps: int = 0


@dataclass(frozen=True, kw_only=True)
class Calls:
    tools: int
    steps: int
    slips: float
    driven: float
    shown: float

    @property
    def shape(self) -> Shape:
        return Shape(observation=2 * self.tools, actions=2 * self.tools)

    def start(self, seed: int) -> tuple[_State, np.ndarray]:
        rng = np.random.default_rng(seed_for(seed, "calls"))
        driven = bool(rng.random() < self.driven)
        state = _State(rng, int(rng.integers(self.tools)), driven)
        return state, self.seen(state.request, state.fault)

    def step(self, state: _State, action: int) -> Step:
        state.steps += 1
        if state.driven:
            action = self.expert(self.seen(state.request, state.fault))
        if state.rng.random() < (self.shown if state.driven else self.slips):
            action = (action + int(state.rng.integers(1, 2 * self.tools))) % (2 * self.tools)
        paid = 0.0
        if state.fault >= 0:
            if action == self.tools + state.fault:
                state.fault = -1
        elif action == state.request:
            paid, state.request = 1.0, int(state.rng.integers(self.tools))
        else:
            state.fault = action % self.tools
        over = state.steps >= self.steps
        parts = {"success": float(state.fault < 0)} if over else {}
        return Step(observation=self.seen(state.request, state.fault), reward=paid, done=over, parts=parts)

    def close(self, state: _State) -> None:
        pass

    def seen(self, request: int, fault: int) -> np.ndarray:
        """[2 tools] the observation of a request, and of a fault (-1: none)."""
        out = np.zeros(2 * self.tools)
        out[request] = 1.0
        if fault >= 0:
            out[self.tools + fault] = 1.0
        return out

    def expert(self, seen: np.ndarray) -> int:
        """The action that is right."""
        broken = seen[self.tools :]
        return int(self.tools + broken.argmax()) if broken.any() else int(seen[: self.tools].argmax())


def calls(*, tools: int = 3, steps: int = 40, slips: float = 0.02, driven: float = 0.0, shown: float = 0.0) -> World:
    """tools: how many there are; each has a call and an undo. steps: of an episode. slips: share of the policy's actions that come out as
    another one. driven: share of the episodes in which the expert acts. shown: share of his own actions that come out as another one."""
    if tools < 1 or steps < 1:
        raise ValueError(f"control/calls: tools is {tools} and steps {steps}: each is 1 or more")
    for name, share in (("slips", slips), ("driven", driven), ("shown", shown)):
        if not 0 <= share <= 1:
            raise ValueError(f"control/calls: {name} is {share}: it is a share, from 0 to 1")
    return Calls(tools=tools, steps=steps, slips=slips, driven=driven, shown=shown)
