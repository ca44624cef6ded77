"""Sampling while the learner learns: which steps may start, with which weights, and what is in flight.

    sync       a step is sampled with the weights that it then trains
    one_off    while step j trains, step j + 1 is sampled with the weights that step j began with: the same in every run
    streamed   steps are sampled ahead, at most `staleness` of them, and each turn of a conversation uses the newest
               weights: a rollout has segments of several versions, each with the log-probs of the policy that wrote it

Steps are sampled whole and in order, and trained in the order in which they began: nothing is dropped, slow
conversations are waited for, and so training sees the same lengths as were generated. (A queue that trains on whatever
ends first favours short rollouts.) Step j may begin when the weights are at most `staleness` updates older than those
that it will train.

A sampler in this process has a copy of the weights (`Mailbox`): one thread samples, the caller's learns. Rollouts
sampled ahead are part of the state, so a run that is killed and resumed neither repeats nor loses them.

If both run on the same CPU, each gets half of the threads while both are active: two thread pools with as many threads
as cores would wait for each other at every operation, and both would be slower than running one after the other.
"""

from __future__ import annotations

import copy
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from synth.types import Message, Problem, Sampling, Scored, Unscorable
from training.rl.experience import Collected, Experience
from training.rollout.mismatch import check_versions
from training.rollout.play import Sampler, Session
from training.types import Batch, Group, Rollout, Segment


@dataclass(frozen=True, kw_only=True)
class Mode:
    """staleness: how many updates the weights may be behind when a step begins; fresh: whether turns use newer weights
    as soon as they exist."""

    staleness: int
    fresh: bool


LIMIT = 7200.0  # seconds from one turn that is sampled to the next, after which the sampler is given up
SYNC, ONE_OFF = Mode(staleness=0, fresh=False), Mode(staleness=1, fresh=False)


class Mailbox:
    """Passes weights from a learner to a sampler. `send` copies them, so the learner continues at once; `take` installs
    the newest."""

    def __init__(self, model: nn.Module) -> None:
        self._lock = threading.Lock()
        self._held = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.version = -1

    @torch.no_grad()
    def send(self, model: nn.Module, version: int) -> None:
        with self._lock:
            for name, tensor in model.state_dict().items():
                self._held[name].copy_(tensor)
            self.version = version

    @torch.no_grad()
    def take(self, sampler: Sampler) -> bool:
        """Install newer weights into the sampler's model, if there are any; returns whether there were."""
        with self._lock:
            if self.version <= sampler.version:
                return False
            for name, tensor in sampler.model.state_dict().items():
                tensor.copy_(self._held[name])
            sampler.version = self.version
            return True


class Closed(Exception):
    """The run ended while sampling was in progress."""


@dataclass
class Following:
    """A `Sampler` that takes newer weights between two turns, and then reads the conversations again: keys and values
    of older weights belong to another policy, and mixing them would give log-probs of neither. `before()` is called
    before each turn."""

    sampler: Sampler
    mailbox: Mailbox | None
    before: Callable[[], None] = lambda: None

    @property
    def model(self) -> nn.Module:
        return self.sampler.model

    @property
    def version(self) -> int:
        return self.sampler.version

    @version.setter
    def version(self, value: int) -> None:
        self.sampler.version = value

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> _Following:
        return _Following(self, prompts, seeds)


class _Following:
    def __init__(self, follower: Following, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> None:
        self.follower, self.seeds = follower, list(seeds)
        self.rows, self.said = list(range(len(prompts))), [[p] for p in prompts]
        self.told: Sequence[np.ndarray] | None = None  # the environment's messages for the rows, not read yet
        self.session: Session | None = None
        self.names: list[int] = []  # rows as the session knows them
        self.version, self.turns = -1, np.zeros(len(prompts), dtype=np.int64)

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        """Kept until the next turn, because reading it would be wasted if newer weights arrive first."""
        self.rows, self.told = list(rows), list(new)
        for r, x in zip(rows, new, strict=True):
            self.said[r].append(x)

    def generate(self, sampling: Sampling) -> list[Segment]:
        source = self.follower
        source.before()
        if source.mailbox is not None:
            source.mailbox.take(source.sampler)
        if (
            self.session is None or source.sampler.version != self.version or not set(self.rows) <= set(self.names)
        ):  # weights were taken now, or by another session of the sampler; or rows waited while others took them
            prompts = [np.concatenate(self.said[r]) for r in self.rows]
            self.session, self.names = source.sampler.open(prompts, [self.seeds[r] for r in self.rows]), list(self.rows)
            self.session.turns[:] = self.turns[self.rows]  # each turn has its own random draws, whoever samples it
            self.version = source.sampler.version
        elif self.told is not None:
            self.session.observe([self.names.index(r) for r in self.rows], self.told)
        self.told = None
        sampled = self.session.generate(sampling)
        self.turns[self.rows] += 1
        for r, segment in zip(self.rows, sampled, strict=True):
            self.said[r].append(segment.ids)
        return sampled


@dataclass
class Ahead:
    """A `Source` of rounds that samples ahead of the learner, in its own thread: use it with `with`, or `close` it.
    Raises ValueError if the sampler shares the learner's weights.

    experience   whose player samples from a copy of the weights
    learner      the model that learns
    steps        that there are in all
    limit        seconds without a new turn after which the sampler is waited for no longer: TimeoutError
    """

    experience: Experience
    learner: nn.Module
    mode: Mode
    steps: int
    limit: float = LIMIT
    waiting: deque[Collected] = field(default_factory=deque, init=False)  # sampled, not trained yet, oldest first
    begun: int = field(default=0, init=False)  # the step that is sampled, or will be next
    allowed: int = field(default=-1, init=False)  # the last step that may begin

    def __post_init__(self) -> None:
        player = self.experience.player
        theirs = {p.data_ptr() for p in self.learner.parameters()}
        if any(p.data_ptr() in theirs for p in player.sampler.model.parameters()):
            raise ValueError(
                "the sampler has the learner's own weights: to sample beside learning it needs a copy of them"
            )
        self.mailbox = Mailbox(self.learner)
        self.experience.player = replace(
            player, sampler=Following(player.sampler, self.mailbox if self.mode.fresh else None, self._turn)
        )
        self._changed = threading.Condition()
        self._busy = self._paused = self._closed = False
        both = self.mode.staleness > 0 and not getattr(
            player.sampler, "elsewhere", False
        )  # both are active at the same time, in this process
        self._shared = (
            both and next(self.learner.parameters()).is_cpu and next(player.sampler.model.parameters()).is_cpu
        )
        self._threads = 0  # how many threads there were before they were shared
        self._failed: BaseException | None = None
        self._heard = time.monotonic()  # when the sampler last began a turn or a step
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """End the sampling thread at its next turn; one that has none within the limit is left behind, and said."""
        with self._changed:
            self._closed = True
            if not self._busy:  # however long it has had nothing to do
                self._heard = time.monotonic()
            self._changed.notify_all()
        while self._thread is not None and self._thread.is_alive():
            if (left := self._heard + self.limit - time.monotonic()) <= 0:
                print(f"warning: {self._stuck()}: this process ends without it", file=sys.stderr)
                break
            self._thread.join(left)
        if self._threads:
            torch.set_num_threads(self._threads)

    def _turn(self) -> None:
        """Called before a turn is sampled."""
        self._heard = time.monotonic()
        if self._closed:
            raise Closed

    def _stuck(self) -> str:
        return f"the sampler of step {self.begun} has not begun another turn for {time.monotonic() - self._heard:.0f} s"

    def _wait(self, what: str) -> None:
        """Wait, with the lock, until the sampler has changed something. Raises what it raised, TimeoutError if it has had no turn for the
        limit. what: what is waited for."""
        left = self._heard + self.limit - time.monotonic()
        if left <= 0:
            raise TimeoutError(
                f"{what} was waited for, and {self._stuck()}: see whether an environment, a tool, a verifier or the engine hangs, and run "
                "again, which goes on from the last checkpoint"
            )
        self._changed.wait(left)
        if self._failed is not None:
            raise self._failed

    def _share(self) -> None:
        """From here on sampler and learner get half of the threads each."""
        if self._shared:
            self._threads = torch.get_num_threads()
            torch.set_num_threads(max(1, self._threads // 2))

    def __call__(self, step: int) -> tuple[Iterable[Batch], Mapping[str, float]]:
        """The batches of a step; waits until it is sampled. Raises what sampling raised, and WrongVersion if a turn was
        sampled with weights from which this step must not learn."""
        began = time.monotonic()
        if self._thread is None:
            self._share()
            self.begun = step + len(self.waiting)
            self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)
            self._thread.start()
        # If turns take no newer weights, the weights of the step before must stay until this step is sampled with them.
        if self.mode.fresh or self.allowed < step:
            self._allow(step, step + self.mode.staleness * self.mode.fresh)
        with self._changed:
            if self._failed is not None:
                raise self._failed
            while not self.waiting:
                self._wait(f"step {step}")
            collected = self.waiting.popleft()
        waited = time.monotonic() - began
        check_versions(collected.kept, step, self.mode.staleness)
        batches, metrics = self.experience.finish(collected)
        if not self.mode.fresh and self.mode.staleness:
            self._allow(step, step + self.mode.staleness)
        return batches, {**metrics, **lags(collected.kept, step), "waited_seconds": waited}

    def _allow(self, version: int, last: int) -> None:
        """Send the learner's weights, and let the steps up to `last` begin."""
        self.mailbox.send(self.learner, version)
        with self._changed:
            self.allowed = min(max(self.allowed, last), self.steps - 1)
            if not self._busy:
                self._heard = time.monotonic()
            self._changed.notify_all()

    def _sample(self) -> None:
        """The sampling thread: one step after the other, each when it may."""
        try:
            while True:
                with self._changed:
                    while not self._closed and (self._paused or self.begun > self.allowed):
                        self._changed.wait()
                    if self._closed:
                        return
                    self._busy, self._heard = True, time.monotonic()
                self.mailbox.take(self.experience.player.sampler)
                collected = self.experience.collect(self.begun)
                with self._changed:
                    self.waiting.append(collected)
                    self.begun += 1
                    self._busy = False
                    self._changed.notify_all()
        except Closed:
            return
        except BaseException as e:  # the learner's thread stops the run
            with self._changed:
                self._failed, self._busy = e, False
                self._changed.notify_all()

    def state(self) -> dict[str, Any]:
        """The experience's state, and the steps in flight: waits for the step that is being sampled, so that no work is
        lost."""
        with self._changed:
            self._paused = self.mode.fresh  # else the weights for the steps that may begin would be lost
            if self._failed is not None:
                raise self._failed
            while self._busy or not self._paused and self.begun <= self.allowed:
                self._wait("what a checkpoint holds of the next steps")
            held = {
                "experience": copy.deepcopy(self.experience.state()),
                "waiting": [pack_collected(c) for c in self.waiting],
            }
            self._paused, self._heard = False, time.monotonic()
            self._changed.notify_all()
        return held

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.experience.load_state(state["experience"])
        self.experience.player.sampler.version = -1  # its copy has no valid weights until some are sent
        self.waiting = deque(unpack_collected(c) for c in state["waiting"])


def lags(groups: Sequence[Group], step: int) -> dict[str, float]:
    """How many updates behind were the weights that wrote the tokens of a step: mean over tokens, and maximum."""
    lag_of_tokens = [
        (step - s.version, len(s.ids))
        for g in groups
        for r in g.rollouts
        for s in r.segments
        if s.role == "model" and s.version is not None
    ]
    n = sum(k for _, k in lag_of_tokens)
    return (
        {"lag": sum(d * k for d, k in lag_of_tokens) / n, "lag_max": float(max(d for d, _ in lag_of_tokens))}
        if n
        else {}
    )


_KEPT = {c.__name__: c for c in (Message, Problem, Sampling, Scored, Unscorable, Segment, Rollout, Group)}


def plain(value: Any) -> Any:
    """Converts rollouts and their contents to mappings, lists, numbers, texts and arrays, which a checkpoint can store.
    Raises TypeError for another type."""
    if type(value) in _KEPT.values():
        return {"@": type(value).__name__, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    if value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic | Tensor):
        return value
    raise TypeError(
        f"a rollout holds a {type(value).__name__}, which a checkpoint cannot keep: an environment or group transform put it into `info`"
    )


def back(value: Any) -> Any:
    """The inverse of `plain`."""
    if isinstance(value, Mapping):
        inner = {k: back(v) for k, v in value.items() if k != "@"}
        return _KEPT[value["@"]](**inner) if "@" in value else inner
    return type(value)(back(v) for v in value) if isinstance(value, list | tuple) else value


def pack_collected(collected: Collected) -> dict[str, Any]:
    """A collected step as plain values; a group that passed unchanged is written once."""
    place = {id(g): i for i, g in enumerate(collected.played)}
    return {
        "step": collected.step,
        "played": plain(collected.played),
        "kept": [place[id(g)] if id(g) in place else plain(g) for g in collected.kept],
        "dropped": dict(collected.dropped),
        "guided": dict(collected.guided),
        "rng": collected.rng.bit_generator.state,
        "seconds": collected.seconds,
    }


def unpack_collected(state: Mapping[str, Any]) -> Collected:
    played = back(state["played"])
    rng = np.random.default_rng()
    rng.bit_generator.state = state["rng"]
    return Collected(
        step=state["step"],
        played=played,
        kept=[played[g] if isinstance(g, int) else back(g) for g in state["kept"]],
        dropped=Counter(state["dropped"]),
        guided=dict(state["guided"]),
        rng=rng,
        seconds=state["seconds"],
    )


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """What `simulate` predicts: total seconds, the seconds in which the sampler and the learner were active, and the
    share of the shorter of the two that overlaps with the longer (0: none, 1: all)."""

    seconds: float
    sampling: float
    learning: float

    @property
    def hidden(self) -> float:
        less = min(self.sampling, self.learning)
        return (self.sampling + self.learning - self.seconds) / less if less else 0.0


def simulate(sampling: Sequence[float], learning: Sequence[float], staleness: int) -> Timeline:
    """The timeline of steps with the given seconds of sampling and learning, sampled in order and at most `staleness`
    ahead.

    Step s begins when the sampler is free and the update before step s - staleness is done; it trains when it is
    sampled and the learner is free. Sending weights takes no time here.
    """
    sampled, learned = [0.0], [0.0]  # end times; entry s + 1 belongs to step s
    for s, (a, b) in enumerate(zip(sampling, learning, strict=True)):
        sampled.append(max(sampled[-1], learned[max(0, s - staleness)]) + a)
        learned.append(max(sampled[-1], learned[-1]) + b)
    return Timeline(seconds=learned[-1], sampling=float(sum(sampling)), learning=float(sum(learning)))
