"""Environments, one file each. An environment is stateless; what an episode has come to is in the state of `start`.

Model output is text to be read, never run. Whatever the model says has a verdict: a turn that makes no sense ends the
episode with score 0; `Unscorable` is for what the model cannot help.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from synth.types import Message, Problem, Score


class EnvPiece(Protocol):
    """Makes an environment.

    Returns:
        an object with `start(problem, tools)` and `step(state, text)`

    Check gives:
        problem: the fields of a problem that matter: prompt, answer, verifier, args, family
        turns: what the model says, turn by turn
        found: {query: [[passage, [facts]], ...]}, what its search tool finds

    Check expects:
        value: the score of the episode, null where there is none
        parts: those of the score
        said: what the environment said
        step_rewards: of each turn
        turn_rewards: of each turn, known at the end
        histories: texts of every rewritten history
    """

    def __call__(self) -> Env: ...


class Env(Protocol):
    """What a `Player` plays."""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        """Begin an episode: its state, and the messages that the model sees first."""
        ...

    def step(self, state: dict, text: str) -> tuple[Sequence[Message], bool, Score | None]:
        """Answer a turn of the model: what it is told, whether the episode is over, and then its score.

        It may leave in the state: `step_reward`, the reward of this turn; `turn_rewards`, those of all turns, where
        they are known only when the episode is over; `history`, the messages that the model sees from here on in place
        of all before (what it is told is among them): the conversation so far and what follows are then rows of their
        own, because neither saw the other.
        """
        ...


def system(instructions: str) -> list[Message]:
    """A system message, or none where there is nothing to say."""
    return [Message(role="system", content=instructions)] if instructions else []
