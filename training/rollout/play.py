"""Plays problems in their environments: conversations turn by turn, as many as `batch_size` at once, into scored
`Group`s."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from synth.types import Message, Problem, Sampling, Score, seed_for
from training.env import Env, is_live
from training.learner.world import alive
from training.model.render import Renderer
from training.rollout.conversation import Conversation
from training.rollout.live import closing, play_live
from training.rollout.players import Players
from training.types import Group, Rollout, Segment


class Session(Protocol):
    """Running conversations, identified by their index in the prompts: `generate` samples the next turn of each that
    was told something last (at first all), `observe` appends the environment's text to some. The others wait, or are
    over. `turns` [rows]: how many turns each has had. If `holds` is true, `generate` takes the choices of each row too. If `joins` is true, a session can take in more conversations
    (TorchSampler's Session)."""

    turns: np.ndarray

    def generate(self, sampling: Sampling) -> list[Segment]: ...

    def observe(self, rows: Sequence[int], new: Sequence[np.ndarray]) -> None: ...


class Sampler(Protocol):
    """TorchSampler, or training/rollout/engine.py."""

    model: Any
    version: int

    def open(self, prompts: Sequence[np.ndarray], seeds: Sequence[int]) -> Session: ...


@dataclass(frozen=True, kw_only=True)
class Player:
    """Everything needed to play.

    envs, tools  by name; a problem names its environment, and the environment names its tools
    sampling     settings of every turn; its `seed` is not used: each rollout has its own
    max_tokens   of a whole conversation, prompt included: a conversation that could exceed it ends with score 0
                 (`truncated`)
    batch_size   conversations of one batch
    concurrent_batches        batches in flight: while the tools of one run, the sampler samples the turns of another
    calls        how many environments of a batch run at the same time; more than one needs thread-safe tools.
                 Environments that wait for programs (training/env/program.py) form no batch: `at_once` of them run, and
                 all that wait at the same time are sampled together (training/rollout/live.py)
    timed        whether `info["seconds"]` of each rollout has the measured wall seconds of each of its messages: for a
                 turn of the model those of its batch, for a message of an environment those of its step (the first of
                 several messages has them all), 0 for the prompt
    players      processes that run the environments in this one's place, all conversations of a batch at the same time;
                 programs are processes of their own already
    plays        role of an environment -> the policy that plays it, if there are several (training/learner/policies.py)
    """

    sampler: Sampler
    renderer: Renderer
    envs: Mapping[str, Env]
    tools: Mapping[str, Callable[..., str]] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 512
    batch_size: int = 256
    concurrent_batches: int = 1
    calls: int = 1
    timed: bool = False
    players: Players | None = None
    plays: Mapping[str, str] = field(default_factory=dict)

    def play(
        self,
        problems: Sequence[Problem],
        samples: int,
        *seed: Any,
        openings: Sequence[np.ndarray] = (),
        resumed: Sequence[Sequence[Segment]] = (),
    ) -> list[Group]:
        """`samples` rollouts of each problem; `seed` are the parts that, with problem and place, are hashed into the
        seed of each. openings: per problem, ids that the first turn begins with: given, not sampled, so never trained
        on. resumed: per problem, turns of an earlier rollout of it that its conversations go on from, as they were
        sampled; for environments that answer the same to the same turns.

        `info` of a rollout: its `messages`; the `calls` of tools; where the history was rewritten, `forks`: for each row
        after the first the place of the message that it begins with, and the model's turn (0 the first) whose
        conversation it goes on from, None for none; of programs the `requests`.

        Group id = problem id with its place, so that a problem drawn twice makes two groups. Raises LookupError for a
        problem whose environment or tool was not given, and ValueError for a prompt that leaves no room for a turn.
        """
        jobs = [(g, i) for g in range(len(problems)) for i in range(samples)]
        sampling = threading.Lock()  # one turn is sampled at a time

        def talks(part: list[tuple[int, int]]) -> list[Conversation]:
            return [self._conversation(problems[g], g, i, seed, openings) for g, i in part]

        programs = [(g, i) for g, i in jobs if problems[g].env in self.envs and is_live(self.envs[problems[g].env])]
        alone = set(programs)
        others = [job for job in jobs if job not in alone]
        done: dict[tuple[int, int], Rollout] = {}
        with _mapping(self.concurrent_batches) as each:
            played = each(
                lambda part: self._batch(talks(part), sampling, [resumed[g] for g, _ in part] if resumed else ()),
                _parts(others, self.batch_size),
            )
            done |= zip(others, (r for batch in played for r in batch), strict=True)
        if programs:
            done |= zip(programs, play_live(self, talks(programs)), strict=True)
        return [
            Group(id=f"{p.id}/{g}", rollouts=tuple(done[g, i] for i in range(samples))) for g, p in enumerate(problems)
        ]

    def _conversation(
        self, problem: Problem, g: int, i: int, seed: Sequence[Any], openings: Sequence[np.ndarray]
    ) -> Conversation:
        if problem.env not in self.envs:
            raise LookupError(
                f"problem {problem.id} plays in the environment {problem.env!r}, which this run was not given"
            )
        env = self.envs[problem.env]
        return Conversation(
            problem=problem,
            group=f"{problem.id}/{g}",
            seed=seed_for(*seed, problem.id, g, i),
            opened=openings[g] if len(openings) else np.zeros(0, dtype=np.int64),
            env=env if self.players is None or is_live(env) else self.players.away(problem.env),
            renderer=self.renderer,
            room=self.max_tokens - self.sampling.max_tokens,
            plays=self.plays,
        )

    def _batch(
        self, talks: list[Conversation], sampling: threading.Lock, resumed: Sequence[Sequence[Segment]] = ()
    ) -> list[Rollout]:
        """One rollout of each conversation, turn by turn, with all running ones in one batch."""
        with _mapping(self.calls if self.players is None else len(talks)) as each, closing(talks):
            list((map if self.players is None else each)(lambda talk: talk.start(self.tools), talks))
            self._prompt(talks)
            for talk, before in zip(talks, resumed, strict=False):
                if talk.score is None:
                    talk.resume(before)

            sessions: list[tuple[Session, dict[int, int]]] = []  # each with its conversations and their places in it
            if alive := [i for i, talk in enumerate(talks) if talk.score is None]:
                with sampling:
                    sessions = [self._opened([(i, talks[i].row, talks[i].seed) for i in alive], talks)]
            while sessions:
                with sampling:
                    turns = [turn for session, rows in sessions for turn in self._turns(session, rows, talks)]
                acts = [(i, talks[i].turn(segment, seconds)) for i, segment, seconds in turns]
                acted = [(i, text) for i, text in acts if text is not None]
                replies = list(each(_step, [(talks[i], text) for i, text in acted]))
                observed: dict[int, np.ndarray] = {}
                whole: list[tuple[int, np.ndarray, int]] = []  # conversations in no session: their ids, and a seed
                for (i, _), answer in zip(acted, replies, strict=True):
                    if (went_on := talks[i].answered(*answer)) is None:
                        continue
                    ids, unheld = went_on
                    if unheld:
                        whole.append((i, ids, talks[i].fork_seed))
                    else:
                        observed[i] = ids
                kept = [(session, {i: k for i, k in rows.items() if i in observed}) for session, rows in sessions]
                sessions = [(session, rows) for session, rows in kept if rows]
                with sampling:
                    for session, rows in sessions:
                        session.observe(list(rows.values()), [observed[i] for i in rows])
                    if whole:
                        sessions.append(self._opened(whole, talks))
        return [talk.rollout(self.timed) for talk in talks]

    def _prompt(self, talks: list[Conversation]) -> None:
        """Render the first messages of each; samples of a prompt have the same messages, which are rendered once."""
        rendered: dict[Any, np.ndarray] = {}
        for talk in talks:
            key = tuple(talk.messages), json.dumps(talk.offered)
            if key not in rendered:
                rendered[key] = self.renderer.prompt(talk.messages, talk.offered)
            if not talk.prompted(rendered[key]):
                raise ValueError(
                    f"the prompt of problem {talk.problem.id} has {talk.used} tokens: with {self.sampling.max_tokens} for a turn that is more "
                    f"than max_tokens = {self.max_tokens} of a conversation; raise it or leave the problem out"
                )

    def _opened(
        self, rows: list[tuple[int, np.ndarray, int]], talks: list[Conversation]
    ) -> tuple[Session, dict[int, int]]:
        """A session of these (conversation, ids, seed), and the index of each conversation in it."""
        who: Any = {"policies": [talks[i].policy for i, *_ in rows]} if self.plays else {}
        session = self.sampler.open([ids for _, ids, _ in rows], [seed for *_, seed in rows], **who)
        return session, {i: place for place, (i, *_) in enumerate(rows)}

    def _turns(
        self, session: Session, rows: dict[int, int], talks: list[Conversation]
    ) -> Iterator[tuple[int, Segment, float]]:
        """(conversation, its turn, wall seconds that the batch took) of each row. Raises ValueError where an environment holds
        turns to choices and the sampler cannot."""
        alive()
        begun = time.perf_counter()
        choices = [talks[i].state.pop("choices", ()) for i in rows]
        if any(choices):
            if not getattr(session, "holds", False):
                raise ValueError(
                    "an environment holds turns to its choices, which this sampler cannot: take the engine torch and no decoder, "
                    "or switch it off in the environment"
                )
            held = [[self.renderer.turn(c) for c in mine] for mine in choices]
            sampled = session.generate(self.sampling, held)  # type: ignore[call-arg]
        else:
            sampled = session.generate(self.sampling)
        seconds = time.perf_counter() - begun
        for i, segment in zip(rows, sampled, strict=True):
            yield i, segment, seconds


def _step(item: tuple[Conversation, str]) -> tuple[Sequence[Message], bool, Score | None, float]:
    talk, text = item
    begun = time.perf_counter()
    return *talk.env.step(talk.state, text), time.perf_counter() - begun


def _parts(jobs: list[tuple[int, int]], size: int) -> list[list[tuple[int, int]]]:
    return [jobs[lo : lo + size] for lo in range(0, len(jobs), size)]


@contextmanager
def _mapping(workers: int) -> Iterator[Callable[..., Any]]:
    """`map`, or with two workers or more that of a pool of threads, which keeps the order as well."""
    if workers <= 1:
        yield map
        return
    with ThreadPoolExecutor(workers) as pool:
        yield pool.map
