"""A sampler whose weights live in an engine outside the learner (vLLM, in this process or behind a port), with sessions
as TorchSampler has.

The learner's weights are pushed before the first turn that is sampled after the version changed, and every completion
carries the version that the engine itself reports. A request that the engine lost is sent once more, after the engine
was revived; if it is lost again, it becomes a segment without tokens whose `stop` is "lost", which the player turns
into `Unscorable`. If the engine holds another version than the one that was pushed, the run stops, because its text
belongs to no policy that the learner knows.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from torch import nn

from synth.types import Sampling, UserError, seed_for
from training.model.model import head_weight
from training.model.render import Renderer
from training.rollout.ending import Ending
from training.types import Segment, Stop


class WrongVersion(UserError):
    """The engine holds other weights than those that were pushed."""


class EngineLost(RuntimeError):
    """The engine has died, or does not answer; requests may be repeated once it is revived."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The completion of a prompt by an engine: ids [n], their log-probs [n] under the sampling distribution, and why it
    ended."""

    ids: np.ndarray
    logp: np.ndarray
    stop: Stop


class Engine(Protocol):
    """Where the weights live. `elsewhere`: in another process, which computes concurrently."""

    elsewhere: ClassVar[bool]

    def load(self, model: nn.Module, version: int) -> None:
        """Load the weights of `model` as version `version`. Raises EngineLost."""

    def version(self) -> int | None:
        """The version of the engine's weights, as it reports; None during an update. Raises EngineLost."""

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        end_id: int,
        conversations: Sequence[int],
        policies: Sequence[str] = (),
    ) -> list[Completion | None]:
        """One completion per prompt, None for each that was lost. `conversations` names the conversation of each
        prompt, so that one of several servers can get all its turns. `policies`, if the model holds several, names the
        adapters of each prompt. Raises EngineLost if all were lost, and ValueError for sampling settings that the
        engine does not support."""
        ...

    def revive(self) -> None:
        """Start it again, or wait until it answers. Raises EngineLost if that fails."""


@dataclass
class EngineSampler:
    """`open` starts a session of conversations that grow turn by turn.

    model    the learner's model, or a copy: its weights are pushed, and pieces compute log-probs with it
    version  of these weights; the code that changes them increments it
    renderer decodes ids; needed for stop strings only
    lost     lost requests, and how many of them were lost twice
    """

    model: nn.Module
    end_id: int
    engine: Engine
    version: int = 0
    renderer: Renderer | None = None
    held: int | None = field(default=None, init=False)
    lost: list[int] = field(default_factory=lambda: [0, 0], init=False)
    _one: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @property
    def elsewhere(self) -> bool:
        return self.engine.elsewhere

    def open(
        self, prompts: Sequence[np.ndarray], seeds: Sequence[int], *, policies: Sequence[str] = ()
    ) -> EngineSession:
        """Start one conversation per prompt (ids [n]) with one seed each; the engine's prefix cache reads common
        prefixes once. policies: per conversation the name of its adapters (training/model/lora.py)."""
        return EngineSession(self, prompts, seeds, policies)

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: Sampling,
        conversations: Sequence[int],
        policies: Sequence[str] = (),
    ) -> list[Completion | None]:
        """One completion per prompt with the weights of `version`, and of its policy if there are several; None if it
        was lost twice. If the engine is elsewhere, several threads may call this. Raises WrongVersion."""
        done: list[Completion | None] = [None] * len(prompts)
        for again in (False, True):
            waiting = [i for i, d in enumerate(done) if d is None]
            if not waiting:
                break
            try:
                with self._one:
                    if again:
                        self.held = None  # a revived engine may have started from other weights
                        self.engine.revive()
                    if self.held != self.version:
                        self.engine.load(self.model, self.version)
                        self.held = self.version
                    self._agrees()
                which: Any = {"policies": [policies[i] for i in waiting]} if policies else {}
                samples = self.engine.complete(
                    [prompts[i] for i in waiting],
                    [seeds[i] for i in waiting],
                    sampling,
                    self.end_id,
                    [conversations[i] for i in waiting],
                    **which,
                )
                with self._one:  # not while another thread pushes the weights to a revived engine
                    self._agrees()
            except EngineLost as e:
                samples = [None] * len(waiting)
                print(
                    f"warning: {e}: {len(waiting)} requests {'are given up' if again else 'will be asked once more'}",
                    file=sys.stderr,
                )
            for i, one in zip(waiting, samples, strict=True):
                done[i] = one
            self.lost[again] += sum(one is None for one in samples)
        return done

    def _agrees(self) -> None:
        there = self.engine.version()
        if there != self.version:
            raise WrongVersion(
                f"the engine holds the weights of version {there}, and those of version {self.version} were pushed: does another run use the "
                "same engine? Give each run an engine of its own"
            )


class EngineSession:
    """Running conversations. `generate` and `observe` alternate; rows are identified by their index in the prompts
    given at the start."""

    def __init__(
        self,
        sampler: EngineSampler,
        prompts: Sequence[np.ndarray],
        seeds: Sequence[int],
        policies: Sequence[str] = (),
    ) -> None:
        self.sampler, self.seeds, self.policies = sampler, list(seeds), list(policies)
        self.turns = np.zeros(len(prompts), dtype=np.int64)
        self.rows = list(range(len(prompts)))
        self.said = [[int(i) for i in p] for p in prompts]

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None:
        """Append the environment's text to each of the conversations `rows`; only these have a turn next."""
        self.rows = list(rows)
        for r, x in zip(rows, new, strict=True):
            self.said[r] += [int(i) for i in x]

    @property
    def joins(self) -> bool:
        """Whether more conversations may join."""
        return not self.policies

    def join(self, keep: Sequence[int], prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> list[int]:
        """Add more conversations to those that were told something since the last turn; returns their indices."""
        places = list(range(len(self.seeds), len(self.seeds) + len(prompts)))
        self.seeds += list(seeds)
        self.said += [[int(i) for i in p] for p in prompts]
        self.turns = np.concatenate([self.turns, np.zeros(len(prompts), dtype=np.int64)])
        self.rows += places
        return places

    def generate(self, sampling: Sampling) -> list[Segment]:
        """Sample the next turn of every alive conversation: at most `max_tokens` ids, ending with the end-of-turn id
        unless cut, or stopped by another id or by a string. Raises ValueError for sampling settings that the engine
        does not support."""
        ending = None  # the engine itself refuses choices
        if sampling.stop or sampling.stop_ids:
            ending = Ending.of(
                sampling, self.sampler.end_id, self.sampler.renderer, len(head_weight(self.sampler.model))
            )
        seeds = [seed_for(self.seeds[r], int(self.turns[r])) for r in self.rows]
        self.turns[self.rows] += 1
        samples = self.sampler.complete(
            [self.said[r] for r in self.rows],
            seeds,
            sampling,
            [self.seeds[r] for r in self.rows],
            [self.policies[r] for r in self.rows] if self.policies else (),
        )
        out = []
        for r, one in zip(self.rows, samples, strict=True):
            if one is not None and ending is not None:
                one = _cut(one, ending)
            ids = np.zeros(0, dtype=np.int64) if one is None else one.ids
            self.said[r] += ids.tolist()
            out.append(
                Segment(
                    ids=ids,
                    role="model",
                    logp=np.zeros(0, dtype=np.float32) if one is None else one.logp,
                    stop="lost" if one is None else one.stop,
                    version=self.sampler.version,
                    sampling=sampling,
                )
            )
        return out


def _cut(one: Completion, ending: Ending) -> Completion:
    """A turn cut to where the sampler of this process would have ended it: an engine that decodes incrementally sees a
    stop string late if the bytes before it are incomplete text."""
    for n, token in enumerate(one.ids, 1):
        why = ending.why(int(token), one.ids[:n])
        if why:
            return Completion(ids=one.ids[:n], logp=one.logp[:n], stop=why)
    return one
