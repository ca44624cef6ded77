"""Environments, one file each. An environment is stateless; what an episode has come to is in the state of `start`.

Model output is text to be read, never run. Whatever the model says has a verdict: a turn that makes no sense ends the
episode with score 0; `Unscorable` is for what the model cannot help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard

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

        An environment of several roles names them in `roles`, and keeps in state["speaker"] the one whose turn is next,
        from `start` on. What they are paid is the value of the score, or the part `reward_ROLE` where there is one.
        """
        ...


class LiveEnv(Env, Protocol):
    """An environment whose episodes are programs at work that ask for turns (training/env/program.py).

    A player has `at_once` of them at work, each in a thread that waits for its program, and closes every episode,
    however it ended. `step` also gets turns that ran into their limit, for the program sees them; state["segment"] is
    the turn as it was sampled, state["prompt_tokens"] the number of those before it. Beside what every environment may leave in the state:

        over      of `start`: the score of an episode that ended before the model was asked
        offered   tools, as chat templates take them, that the messages of `start` or of `history` are shown with
        follows   which of the model's turns (0 the first) the replies go on from, where that is not the last: the
                  ids up to its end are then the start of a new row
        most, stops   of the next turn: its most tokens, and texts that end it
        logprobs  whether the texts of the next turn's tokens are to stand in state["tokens"]
        requests  what to keep of each request, in `info["requests"]` of the rollout
    """

    live: bool
    at_once: int  # episodes that are at work at a time

    def close(self, state: dict) -> None:
        """End what the episode has under way. A second call does nothing."""
        ...


def is_live(env: Env) -> TypeGuard[LiveEnv]:
    """Whether its episodes are programs at work."""
    return getattr(env, "live", False)


def opening(env: Env, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
    """`env.start` for those who tell an episode without playing it. Raises ValueError for an environment whose episodes
    are programs at work: what it begins with is what its program asks."""
    if is_live(env):
        raise ValueError(
            f"problem {problem.id} is played by a program ({problem.env}), whose episodes can only be played: leave out "
            "what tells them otherwise (demonstrations, replays and hints of rl.group_transforms, and the observation "
            "concentration)"
        )
    return env.start(problem, tools)


def system(instructions: str) -> list[Message]:
    """A system message, or none where there is nothing to say."""
    return [Message(role="system", content=instructions)] if instructions else []


_SAID = re.compile(r"<(search|open|find|answer)>.*?</\1>|</?think>|[\s.…]", re.DOTALL)


def thinks(text: str) -> float:
    """1 where a turn holds more than its calls and its answer; an empty `<think></think>`, or dots in it, are nothing."""
    return float(bool(_SAID.sub("", text)))
