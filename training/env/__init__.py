"""Environments, one file each. An environment is stateless; the state that `start` returns holds the progress of an
episode.

Model output is text to be read, never executed. Every model output gets a verdict: a turn that makes no sense ends the
episode with score 0; `Unscorable` is for failures that are not the model's fault.
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
        found: {query: [[passage, [facts]], ...]}, the results of its search tool

    Check expects:
        value: the score of the episode, null if there is none
        parts: the parts of the score
        said: what the environment said
        step_rewards: the reward of each turn
        turn_rewards: the reward of each turn, if known only at the end
        histories: the texts of every rewritten history
    """

    def __call__(self) -> Env: ...


class Env(Protocol):
    """What a `Player` plays."""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        """Begin an episode: its state, and the messages that the model sees first."""
        ...

    def step(self, state: dict, text: str) -> tuple[Sequence[Message], bool, Score | None]:
        """Answer a turn of the model: the messages for the model, whether the episode is over, and if so its score.

        It may set in the state: `step_reward`, the reward of this turn; `turn_rewards`, the rewards of all turns, if
        they are known only when the episode is over; `history`, the messages that replace all earlier ones from here on
        (the new messages are among them). The conversation so far and the rest are then separate rows, because neither
        saw the other.

        Where only some texts make sense as the next turn, it may set state["choices"] to them, in `start` too: a sampler that can
        holds the turn to them, and what was sampled is learned as what it is, a draw among what was allowed.

        An environment of several roles names them in `roles`, and keeps in state["speaker"] the one whose turn is next,
        from `start` on. The reward of a role is the part `reward_ROLE` of the score if there is one, else the value of
        the score.
        """
        ...


class LiveEnv(Env, Protocol):
    """An environment whose episodes are running programs that request turns (training/env/program.py).

    A player runs `at_once` of them at a time, each in a thread that waits for its program, and closes every episode,
    however it ended. `step` also gets turns that hit their token limit, because the program sees them; state["segment"]
    is the turn as it was sampled, state["prompt_tokens"] the number of tokens before it. Besides what every environment
    may set in the state:

        over      of `start`: the score of an episode that ended before the first request to the model
        offered   tools, as chat templates take them, that the messages of `start` or of `history` are shown with
        follows   which of the model's turns (0 the first) the messages continue, if not the last: the ids up to the end
                  of that turn then start a new row
        most, stops   for the next turn: its maximum of tokens, and texts that end it
        logprobs  whether to put the texts of the next turn's tokens into state["tokens"]
        requests  what to keep of each request, in `info["requests"]` of the rollout
    """

    live: bool
    at_once: int  # episodes that run at the same time

    def close(self, state: dict) -> None:
        """Stop everything that the episode has running. A second call does nothing."""
        ...


def is_live(env: Env) -> TypeGuard[LiveEnv]:
    """Whether its episodes are running programs."""
    return getattr(env, "live", False)


def opening(env: Env, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
    """`env.start` for callers that write an episode without playing it. Raises ValueError for an environment whose
    episodes are running programs: only the program knows how its episode begins."""
    if is_live(env):
        raise ValueError(
            f"problem {problem.id} is played by a program ({problem.env}), whose episodes can only be played: leave out "
            "pieces that write episodes without playing them (demonstrations, replays and hints of rl.group_transforms, "
            "and the observation concentration)"
        )
    return env.start(problem, tools)


def system(instructions: str) -> list[Message]:
    """A system message with this text; no message for an empty text."""
    return [Message(role="system", content=instructions)] if instructions else []


_SAID = re.compile(r"<(search|open|find|answer)>.*?</\1>|</?think>|[\s.…]", re.DOTALL)


def thinks(text: str) -> float:
    """1 if a turn contains more than its calls and its answer; an empty `<think></think>`, or one with only dots, does
    not count."""
    return float(bool(_SAID.sub("", text)))
