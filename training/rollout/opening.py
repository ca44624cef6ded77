"""How a problem is shown to a model: the single place that training data and episodes share.

An episode begins with what its environment says (`Env.start`): its instructions, its tools, the problem. Demonstrations
and pairs are stored with the problem alone; `Opening` lets them begin as the episode would, so that a model is trained
on the prompts that it plays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from synth.types import Demonstration, Message, PreferencePair, Problem
from training.env import Env, is_live

KEPT = 1 << 13  # openings in memory


@dataclass
class Opening:
    """envs, tools: those of the player. problems: by id. `as_written` counts conversations that were left as stored:
    because their problem or environment is unknown here, because they do not begin with the problem, or because a
    program plays them and chooses the beginning."""

    envs: Mapping[str, Env]
    tools: Mapping[str, Callable[..., Any]]
    problems: Mapping[str, Problem]
    as_written: int = 0
    _seen: dict[str, tuple[Message, ...]] = field(default_factory=dict)

    def of(self, problem: Problem) -> tuple[Message, ...]:
        """The messages that an episode of the problem begins with."""
        if problem.id not in self._seen:
            if len(self._seen) == KEPT:
                self._seen.clear()
            self._seen[problem.id] = tuple(self.envs[problem.env].start(problem, self.tools)[1])
        return self._seen[problem.id]

    def conversation(self, name: str, messages: Sequence[Message]) -> tuple[Message, ...]:
        """A stored conversation about the problem called `name`, with the opening of an episode."""
        problem = self.problems.get(name)
        if (
            problem is None
            or problem.env not in self.envs
            or is_live(self.envs[problem.env])
            or tuple(messages[: len(problem.prompt)]) != tuple(problem.prompt)
        ):
            self.as_written += 1
            return tuple(messages)
        return (*self.of(problem), *messages[len(problem.prompt) :])

    def demonstration(self, demonstration: Demonstration) -> Demonstration:
        return replace(demonstration, messages=self.conversation(demonstration.problem, demonstration.messages))

    def pair(self, pair: PreferencePair) -> PreferencePair:
        return replace(pair, prompt=self.conversation(pair.problem, pair.prompt))
