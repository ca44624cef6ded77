"""Environments in processes of their own beside the sampler (`rl.players`).

A conversation stays with one process, which holds the environment's state of it; turns go there as text, and what the
environment says comes back. Sampling, seeds and order are those of a single process, and an environment is a function of
its problem and of the turns it was told, so which process plays a conversation changes no byte.

If a process ends, another is started, and each of its episodes is played again there from its problem and the turns so
far, when its next turn comes: nothing is sampled twice. An episode that ends `TRIES` processes, one whose environment
does not answer within `wait` seconds, and one that says something else when it is played again, is `Unscorable`.

Nothing here imports torch: a process begins with the environments and tools alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from multiprocessing.reduction import ForkingPickler
from typing import Any

from synth.types import Message, Problem, Score, Unscorable
from training.env import Env

TRIES = 3  # processes that one call of an episode may end
START = 300.0  # seconds until a process has its environments and tools
WAIT = 600.0  # seconds for one answer of an environment
GRACE = 5.0  # seconds for a process to end by itself
# What a player takes out of an environment's state: after `start`, after `step`, once an episode is over; and what it
# reads there.
STARTED, STEPPED, OVER = ("offered", "over"), ("step_reward", "history", "follows", "offered"), ("turn_rewards",)
NEXT, READ = ("choices", "most", "stops"), ("calls", "speaker")
Built = tuple[Mapping[str, Env], Mapping[str, Any]]  # environments and tools, by name
CONTEXT = multiprocessing.get_context("spawn")  # a fork would copy locks that threads of this process hold


class Ended(Exception):
    """The process of a player is gone; how it ended."""


class Late(Exception):
    """It did not answer in time; what was waited for."""


@dataclass(eq=False)
class Place:
    """The place of one process, here of this machine; `number` counts those that it has had."""

    build: Callable[[], Built]
    name: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    number: int = 0
    held: int = 0  # episodes that are played here
    gone: deque[int] = field(default_factory=deque)  # episodes whose state it need not keep
    process: Any = None
    pipe: Any = None
    ready: bool = False

    def start(self) -> None:
        self.opened()
        self.number, self.ready = self.number + 1, False
        self.gone.clear()

    def opened(self) -> None:
        """Start the process, and open the pipe to it."""
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=_work, args=(theirs, self.build), name=self.name, daemon=True)
        self.process.start()
        theirs.close()

    def begun(self) -> BaseException | None:
        """Wait until the process has its environments and tools; what was raised where they could not be built."""
        if self.ready:
            return None
        reply = self.heard(START, "it to have its environments and tools")
        self.ready = not isinstance(reply, BaseException)
        return None if self.ready else reply

    def ask(self, request: tuple[Any, ...], wait: float) -> Any:
        """The answer of the process. Raises what the environment raised there, `Ended` and `Late`."""
        try:
            answer = self.begun()
            if answer is None:
                gone = [self.gone.popleft() for _ in range(len(self.gone))]
                answer = self.answer((gone, *request), wait)
        except (EOFError, OSError) as e:
            raise Ended(self.end(GRACE)) from e
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def answer(self, request: tuple[Any, ...], wait: float) -> Any:
        """Send a request, and hear the answer, which may be what was raised there."""
        self.pipe.send(request)
        return self.heard(wait, f"an answer of the environment {request[2]}")

    def heard(self, wait: float, what: str) -> Any:
        if not self.pipe.poll(wait):
            self.end()
            raise Late(f"waited {wait:g} s for {what}")
        return self.pipe.recv()

    def end(self, grace: float = 0.0) -> str:
        """End the process, which has so many seconds to end by itself; how it ended."""
        process, self.process = self.process, None
        if process is None:
            return "it was not running"
        self.pipe.close()
        process.join(grace)
        process.kill()
        process.join()
        code = process.exitcode or 0
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"


@dataclass
class _Episode:
    """What it takes to play an episode again: the problem, the turns, and what was answered to each."""

    problem: Problem
    place: Place
    number: int  # of the process that holds its state
    turns: list[str] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    closed: bool = False


@dataclass(eq=False)
class Players:
    """
    build   gives the environments and tools, in each process; it is pickled
    n       processes
    wait    seconds that an environment has for one answer
    place   makes the place of a process of its builder and its name: on this machine, if nothing else is said

    Thread-safe. A context manager: it starts the processes (the first turn does, where that comes before), and on leaving
    it none is left. If this process is killed, they end by themselves.
    """

    build: Callable[[], Built]
    n: int
    wait: float = WAIT
    place: Callable[[Callable[[], Built], str], Place] = Place
    _places: list[Place] = field(init=False, repr=False)
    _choice: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _ids: Any = field(default_factory=count, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"{self.n} players: there must be at least one")
        self._places = [self.place(self.build, f"player {k + 1} of {self.n}") for k in range(self.n)]

    def __enter__(self) -> Players:
        for place in self._places:
            if place.process is None:
                place.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for place in self._places:
            if place.process is not None:
                place.pipe.close()  # all end at the same time
        for place in self._places:
            place.end(GRACE)

    @property
    def pids(self) -> list[int]:
        """Of the processes that run now."""
        return [p.process.pid for p in self._places if p.process is not None]

    def away(self, name: str) -> Away:
        """The environment of that name, as it is played in these processes."""
        return Away(name, self)

    def begin(self, name: str, problem: Problem) -> tuple[dict[str, Any], list[Message]]:
        with self._choice:
            place = min(self._places, key=lambda p: p.held)  # the first of the least loaded
            place.held += 1
        episode = _Episode(problem, place, 0)
        state = {"id": next(self._ids), "episode": episode}
        answer = self._asked(name, state["id"], episode)
        if isinstance(answer, Unscorable):
            return state | {"over": answer}, list(problem.prompt)
        shown, messages = answer
        return state | shown, messages

    def turn(self, name: str, state: dict[str, Any], text: str) -> tuple[Sequence[Message], bool, Score | None]:
        episode = state["episode"]
        episode.turns.append(text)
        answer = self._asked(name, state["id"], episode)
        if isinstance(answer, Unscorable):
            return [], True, answer
        shown, *reply = answer
        state |= shown
        return tuple(reply)  # type: ignore[return-value]

    def close(self, state: dict[str, Any]) -> None:
        """Forget an episode; a second call does nothing."""
        episode: _Episode = state["episode"]
        with self._choice:
            if episode.closed:
                return
            episode.closed = True
            episode.place.held -= 1
        episode.place.gone.append(state["id"])

    def _asked(self, name: str, key: int, episode: _Episode) -> Any:
        """The answer to the last turn of an episode (to its start if it has none)."""
        place, ended = episode.place, ""
        with place.lock:
            for _ in range(TRIES):
                try:
                    return self._answer(name, key, episode)
                except Ended as e:
                    ended = str(e)
                    print(
                        f"warning: {place.name} ended ({ended}): another is started, and its {place.held} episodes are "
                        "played again",
                        file=sys.stderr,
                        flush=True,
                    )
                except Late as e:
                    if not place.ready:
                        raise TimeoutError(f"{place.name}: {e}") from None
                    print(f"warning: {place.name}: {e}: it was ended", file=sys.stderr, flush=True)
                    return Unscorable(reason=f"player_late: {e}")
        return Unscorable(reason=f"player_lost: {name} ended {TRIES} processes ({ended})")

    def _answer(self, name: str, key: int, episode: _Episode) -> Any:
        place = episode.place
        if place.process is None:
            place.start()
        lost = episode.number != place.number
        if lost:  # play what was answered before, to have its state there
            for done in range(len(episode.answers)):
                again = place.ask(
                    (key, name, episode.problem, None if done == 0 else episode.turns[done - 1]), self.wait
                )
                if again[1] != episode.answers[done]:
                    return Unscorable(
                        reason=f"player_lost: {name} said something else when it was played again: it is no function of "
                        "the problem and the turns"
                    )
        turn = episode.turns[-1] if episode.turns else None
        answer = place.ask((key, name, episode.problem, turn), self.wait)
        episode.number = place.number
        episode.answers.append(answer[1])
        return answer


@dataclass(frozen=True)
class Away:
    """An environment (training/env) that is played in another process. Its state is there."""

    name: str
    players: Players

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return self.players.begin(self.name, problem)

    def step(self, state: dict, text: str) -> tuple[Sequence[Message], bool, Score | None]:
        return self.players.turn(self.name, state, text)

    def close(self, state: dict) -> None:
        self.players.close(state)


def _work(pipe: Connection, build: Callable[[], Built]) -> None:
    """The process: answers until its starter is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the starter's to answer
    threading.Thread(target=end_with_starter, daemon=True).start()
    try:
        envs, tools = build()
    except BaseException as e:
        send(pipe, e)
        return
    pipe.send("ready")
    states: dict[int, dict] = {}
    while True:
        try:
            gone, key, name, problem, text = pipe.recv()
        except EOFError:
            return
        for old in gone:
            states.pop(old, None)
        try:
            answer = _played(envs[name], tools, states, key, problem, text)
        except Exception as e:
            e.add_note(f"in the process of a player:\n{traceback.format_exc()}")
            answer = e
        send(pipe, answer)


def _played(env: Env, tools: Any, states: dict[int, dict], key: int, problem: Problem, text: str | None) -> Any:
    """(what a player takes out of the state, messages[, whether it is over, score])"""
    if text is None:
        state, messages = env.start(problem, tools)
        states[key] = state
        return _shown(state, (*STARTED, *NEXT)), list(messages)
    state = states[key]
    messages, over, score = env.step(state, text)
    if over:
        del states[key]
    return _shown(state, (*STEPPED, *NEXT, *(OVER if over else ()))), list(messages), over, score


def _shown(state: dict, taken: Sequence[str]) -> dict[str, Any]:
    return {k: state.pop(k) for k in taken if k in state} | {k: state[k] for k in READ if k in state}


def send(pipe: Connection, answer: Any) -> None:
    """Send it, or, if it does not survive that, what it was."""
    try:
        if isinstance(answer, BaseException):  # some can be sent and not be made anew
            ForkingPickler.loads(ForkingPickler.dumps(answer))  # type: ignore[misc] (a function of the C module)
        pipe.send(answer)
    except (OSError, EOFError):
        raise
    except Exception as e:
        pipe.send(RuntimeError(f"what a player shall send back cannot be pickled ({e}): {answer!r}"[:2000]))


def end_with_starter() -> None:
    """End this process, one of `CONTEXT`, once the one that started it is gone."""
    starter = multiprocessing.parent_process()
    assert starter is not None
    wait_for([starter.sentinel])
    os._exit(1)
