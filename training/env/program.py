"""An agent program as an environment: it requests turns at its own address, and the trained policy samples the replies
(docs/agents.md).

The program is not changed: it gets a base URL and a key where OpenAI's and Anthropic's clients look for them, and the
problem as JSON on its standard input. Each of its requests is one turn of the model. A request whose messages continue
an earlier request and the reply to it continues from the sampled ids; a request that rewrites the history (summaries,
dropped turns, a second agent) is a separate row. The problem's verifier scores the program's final answer, or the
program reports its own score.

The stage provides the code that starts programs and answers them (tasks/serving): `tools["programs"]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from synth.types import Message, Problem, Score, Scored, Unscorable
from synth.verify import verify

if TYPE_CHECKING:
    from training.types import Segment

TOOLS = ()
BUDGETS = ("requests", "seconds", "memory_mb", "output_mb", "at_once")
ENDS = "the program's end; a request beyond the budget"
GIVES = {"requests": "", "forks": "", "answered": "", "spent": ""}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request of the program.

    messages  that the model is to see: all of them, or, if `follows` is set, those after that turn
    follows   the model's turn (0 the first of the episode) that this request continues; None: the model has not seen
              its history
    tools     that the model may call, as chat templates take them
    most      tokens of the reply; None: the stage's limit
    stops     texts that end the reply
    logprobs  whether the reply includes the texts of the sampled tokens
    record    what is stored of the request
    """

    messages: tuple[Message, ...]
    follows: int | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    most: int | None = None
    stops: tuple[str, ...] = ()
    logprobs: bool = False
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The program's end: its answer, or the score that it reports, with its parts; `lost`: why there is neither, if
    that is not the model's fault."""

    answer: str | None = None
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    lost: str = ""


class Episode(Protocol):
    """A running program."""

    def next(self) -> Asked | Ended:
        """Wait for its next request or its end."""
        ...

    def reply(self, text: str, segment: Segment, prompt_tokens: int, tokens: Sequence[str] = ()) -> None:
        """Answer the request that `next` returned last. prompt_tokens: how many tokens the model saw before the reply.
        tokens: texts of the segment's ids, if the request wants them."""
        ...

    def close(self, why: str) -> None:
        """End the program. A waiting request gets `why` as its error."""
        ...


@dataclass(frozen=True, kw_only=True)
class Program:
    """The knobs of `program`, as `tools["programs"]` reads them."""

    command: str
    function: str
    score: Literal["verifier", "program"]
    requests: int
    seconds: float
    memory_mb: int
    output_mb: int
    variables: tuple[str, ...]
    at_once: int
    live: bool = field(default=True, init=False)

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        """Raises LookupError if the player has nothing that starts programs."""
        if "programs" not in tools:
            raise LookupError(
                f"problem {problem.id} is to be played by a program, and the player was not given `programs`"
            )
        episode: Episode = tools["programs"](self, problem)
        state = {"problem": problem, "episode": episode, "calls": 0, "forks": 0, "requests": []}
        request = episode.next()
        if isinstance(request, Ended):
            lost = request.lost or "agent_silent: the program ended without asking the model"
            state["over"] = Unscorable(reason=lost)
            return state, list(problem.prompt)
        self._heard(state, request)
        state.pop("follows", None)
        return state, list(request.messages)

    def step(self, state: dict, text: str) -> tuple[Sequence[Message], bool, Score | None]:
        state["calls"] += 1
        told = [state.pop("tokens")] if "tokens" in state else []
        state["episode"].reply(text, state.pop("segment"), state.pop("prompt_tokens"), *told)
        request = state["episode"].next()
        if isinstance(request, Ended):
            return [], True, self._score(state, request)
        if state["calls"] >= self.requests:
            return [], True, Scored(value=0.0, parts={**self._parts(state, False), "spent": 1.0})
        self._heard(state, request)
        if request.follows is not None:
            return request.messages, False, None
        state["history"] = list(request.messages)
        return [], False, None

    def close(self, state: dict) -> None:
        state["episode"].close("the episode is over: no further request is answered")

    def _heard(self, state: dict, request: Asked) -> None:
        state["forks"] += bool(state["calls"]) and request.follows != state["calls"] - 1
        state["requests"].append(dict(request.record))
        state |= {"offered": request.tools, "follows": request.follows, "most": request.most, "stops": request.stops}
        state["logprobs"] = request.logprobs

    def _score(self, state: dict, ended: Ended) -> Score:
        if ended.lost:
            return Unscorable(reason=ended.lost)
        parts = self._parts(state, ended.answer is not None or ended.score is not None)
        if self.score == "program":
            if ended.score is None:
                return Unscorable(reason="agent_score: the program ended without a score, and `score` is program")
            return Scored(value=ended.score, parts={**ended.parts, **parts})
        if ended.answer is None:
            return Scored(value=0.0, parts=parts)
        score = verify(state["problem"], ended.answer)
        return Scored(value=score.value, parts={**score.parts, **parts}) if isinstance(score, Scored) else score

    def _parts(self, state: Mapping[str, Any], answered: bool) -> dict[str, float]:
        return {
            "requests": float(state["calls"]),
            "forks": float(state["forks"]),
            "answered": float(answered),
            "spent": 0.0,
        }


def program(
    *,
    command: str = "",
    function: str = "",
    score: Literal["verifier", "program"] = "verifier",
    requests: int = 16,
    seconds: float = 60.0,
    memory_mb: int = 4096,
    output_mb: int = 16,
    variables: Sequence[str] = (),
    at_once: int = 32,
) -> Program:
    """An agent program, one process for each episode.

    Args:
        command: the command line of the program. It reads the problem as JSON from its standard input; the last line
            that it writes is its answer, or JSON with "answer" or "score"
        function: instead of a command a Python function, "module:name", called with base_url, key and problem; it
            returns the answer, or a mapping with "answer" or "score"
        score: who scores: the problem's verifier, or the program itself
        requests: the most requests of an episode; one more ends it with score 0 (`spent`)
        seconds: the time that the program may take in all, without the time in which it waits for the model
        memory_mb: address space of each of its processes
        output_mb: the largest file that it may write, standard output included
        variables: names of your environment variables that the program may see; otherwise it sees only PATH, HOME and
            the like
        at_once: how many programs run at the same time

    Raises ValueError for both a command and a function, and for budgets below 1.
    """
    if command and function:
        raise ValueError("the environment program has a command and a function: name one of them")
    for name, value in {
        "requests": requests,
        "seconds": seconds,
        "memory_mb": memory_mb,
        "output_mb": output_mb,
        "at_once": at_once,
    }.items():
        if value < 1:
            raise ValueError(f"the budget {name} of the environment program is {value}: it must be at least 1")
    if score not in ("verifier", "program"):
        raise ValueError(f"the environment program has no score {score!r}: verifier or program")
    return Program(
        command=command,
        function=function,
        score=score,
        requests=requests,
        seconds=seconds,
        memory_mb=memory_mb,
        output_mb=output_mb,
        variables=tuple(variables),
        at_once=at_once,
    )
