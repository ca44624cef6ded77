"""Play problems in their environments: conversations turn by turn, as many as `batch_size` at once, into scored `Group`s."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from synth.types import Message, Problem, Sampling, Score, Scored, Unscorable, seed_for
from training.env import Env
from training.model.render import Renderer
from training.types import Group, Rollout, Segment


class Session(Protocol):
    """Conversations under way, named by their place in the prompts: `generate` gives the next turn of each that is
    alive, `observe` keeps some of them and tells each what the environment said."""

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

    envs, tools  by name; a problem names its environment, and the environment the tools it wants
    sampling     of every turn; its `seed` is not read: each rollout has its own
    max_tokens   of a whole conversation, prompt included: one that could grow beyond ends with score 0 (`truncated`)
    batch_size   conversations of one batch
    concurrent_batches        batches in flight: while the tools of one are at work, the sampler writes the turns of another
    calls        environments of a batch that are at work at a time; more than one needs tools that may be called from
                 several threads
    timed        whether `info["seconds"]` of each rollout tells what was measured: wall seconds of each of its
                 messages, for a turn of the model those of the batch that it was sampled in, for a message of an
                 environment those of its step (the first of several has them all), 0 for the prompt
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

    def play(
        self, problems: Sequence[Problem], samples: int, *seed: Any, openings: Sequence[np.ndarray] = ()
    ) -> list[Group]:
        """`samples` rollouts of each problem; `seed` are the parts that, with problem and place, are hashed into the
        seed of each. openings: per problem, ids that the first turn begins with: given, not sampled, so never trained
        on.

        Group id = problem id with its place, so that a problem drawn twice makes two groups. Raises LookupError for a
        problem whose environment or tool was not given, and ValueError for a prompt that leaves no room for a turn.
        """
        jobs = [(g, i) for g in range(len(problems)) for i in range(samples)]
        done: list[list[Rollout]] = [[] for _ in problems]
        sampling = threading.Lock()  # one turn is sampled at a time, whoever waits

        def one(part: list[tuple[int, int]]) -> list[Rollout]:
            seeds = [seed_for(*seed, problems[g].id, g, i) for g, i in part]
            opened = [openings[g] if len(openings) else np.zeros(0, dtype=np.int64) for g, _ in part]
            return self._batch(
                [problems[g] for g, _ in part], [f"{problems[g].id}/{g}" for g, _ in part], seeds, opened, sampling
            )

        with _mapping(self.concurrent_batches) as each:
            for (g, _), rollout in zip(
                jobs, (r for batch in each(one, _parts(jobs, self.batch_size)) for r in batch), strict=True
            ):
                done[g].append(rollout)
        return [Group(id=f"{p.id}/{g}", rollouts=tuple(r)) for g, (p, r) in enumerate(zip(problems, done, strict=True))]

    def _batch(
        self,
        problems: list[Problem],
        groups: list[str],
        seeds: list[int],
        opened: list[np.ndarray],
        sampling: threading.Lock,
    ) -> list[Rollout]:
        """One rollout per problem, turn by turn, all that are alive in one batch."""
        n = len(problems)
        missing = sorted({p.env for p in problems} - set(self.envs))
        if missing:
            lost = next(p.id for p in problems if p.env == missing[0])
            raise LookupError(f"problem {lost} plays in the environment {missing[0]!r}, which this run was not given")
        envs = [self.envs[p.env] for p in problems]
        states, messages = map(
            list, zip(*(e.start(p, self.tools) for e, p in zip(envs, problems, strict=True)), strict=True)
        )
        rendered = {
            message: self.renderer.prompt(message) for message in {tuple(m) for m in messages}
        }  # samples of a prompt ask the same
        prompts = [np.concatenate([rendered[tuple(m)], x]) for m, x in zip(messages, opened, strict=True)]
        for problem, ids in zip(problems, prompts, strict=True):
            if len(ids) + self.sampling.max_tokens > self.max_tokens:
                raise ValueError(
                    f"the prompt of problem {problem.id} has {len(ids)} tokens: with {self.sampling.max_tokens} for a turn that is more "
                    f"than max_tokens = {self.max_tokens} of a conversation; raise it or leave the problem out"
                )
        segments: list[list[Segment]] = [[Segment(ids=ids, role="env")] for ids in prompts]
        scores: list[Score | None] = [None] * n
        used = [len(p) for p in prompts]
        seconds = [[0.0] * len(m) for m in messages]

        def step(item: tuple[int, str]) -> tuple[tuple[list[Message], bool, Score], float]:
            begun = time.perf_counter()
            return envs[item[0]].step(states[item[0]], item[1]), time.perf_counter() - begun

        with sampling:
            sessions = [
                (self.sampler.open(prompts, seeds), {i: i for i in range(n)})
            ]  # each with its conversations and their places in it
        with _mapping(self.calls) as each:
            while sessions:
                turns: list[tuple[int, Segment, float]] = []
                with sampling:
                    for session, rows in sessions:
                        begun = time.perf_counter()
                        sampled = session.generate(self.sampling)
                        spent = time.perf_counter() - begun
                        turns += [(i, segment, spent) for i, segment in zip(rows, sampled, strict=True)]
                acted: dict[int, str] = {}
                for i, segment, spent in turns:
                    text = self.renderer.decode(
                        segment.ids if len(segments[i]) > 1 else np.concatenate([opened[i], segment.ids])
                    )
                    segments[i].append(segment)
                    messages[i].append(Message(role="assistant", content=text))
                    seconds[i].append(spent)
                    if segment.stop == "lost":
                        scores[i] = Unscorable(reason="engine_lost: the engine gave no answer, twice")
                    elif segment.stop == "length":  # an unfinished turn is never acted on
                        scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                    else:
                        acted[i] = text
                observed: dict[int, np.ndarray] = {}
                restarted: dict[int, np.ndarray] = {}  # conversations whose history was rewritten
                for i, ((replies, over, score), spent) in zip(acted, each(step, acted.items()), strict=True):
                    scores[i] = score
                    segment = segments[i][-1]
                    segments[i][-1] = replace(segment, reward=states[i].pop("step_reward", None))
                    history = states[i].pop("history", None)
                    written = replies if history is None else history
                    messages[i].extend(written)
                    seconds[i].extend([spent, *[0.0] * (len(written) - 1)] if written else [])
                    if over:
                        segments[i] = judged(segments[i], states[i].pop("turn_rewards", None))
                        continue
                    ids = self.renderer.observation(replies) if history is None else self.renderer.prompt(history)
                    if (
                        history is None and segment.ids[-1] != self.renderer.end_id
                    ):  # a string stopped it: what ends a turn was not written
                        ids = np.append(self.renderer.end_id, ids)
                    used[i] = len(ids) + (used[i] + len(segment.ids) if history is None else 0)
                    if used[i] + self.sampling.max_tokens > self.max_tokens:
                        scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                        continue
                    segments[i].append(Segment(ids=ids, role="env", context_reset=history is not None))
                    (observed if history is None else restarted)[i] = ids
                going = [
                    (session, {i: place for i, place in rows.items() if i in observed}) for session, rows in sessions
                ]
                sessions = [(session, rows) for session, rows in going if rows]
                with sampling:
                    for session, rows in sessions:
                        session.observe(list(rows.values()), [observed[i] for i in rows])
                    if restarted:
                        forked = [seed_for(seeds[i], "fork", len(segments[i])) for i in restarted]
                        places = {i: place for place, i in enumerate(restarted)}
                        sessions.append((self.sampler.open(list(restarted.values()), forked), places))
        return [
            Rollout(
                problem=problems[i],
                group=groups[i],
                segments=tuple(segments[i]),
                score=scores[i],
                text="\n".join(f"[{m.role}] {m.content}" for m in messages[i]),
                info={
                    "calls": states[i].get("calls", 0),
                    "messages": tuple(messages[i]),
                    **({"seconds": tuple(seconds[i])} if self.timed else {}),
                },
            )
            for i in range(n)
        ]


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


def judged(segments: list[Segment], rewards: Sequence[float] | None) -> list[Segment]:
    """The segments with the rewards of turns that an environment can give only at the end, one for each turn of the
    model."""
    if rewards is None:
        return segments
    given = iter(rewards)
    return [replace(s, reward=float(next(given))) if s.role == "model" else s for s in segments]
