"""Play problems in their environments: conversations turn by turn, as many as `batch_size` at once, into scored `Group`s.

A conversation whose history an environment rewrites goes on as a row of its own (`Segment.context_reset`). Where it
goes on from an earlier turn of the model, the row begins with the ids that turn was sampled with: what was sampled is
never rendered again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from synth.types import Message, Problem, Sampling, Score, Scored, Unscorable, seed_for
from training.env import Env, is_live
from training.model.render import Renderer
from training.types import Group, Rollout, Segment


class Session(Protocol):
    """Conversations under way, named by their place in the prompts: `generate` gives the next turn of each that is
    alive, `observe` keeps some of them and tells each what the environment said. `turn`: how many there were."""

    turn: int

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
                 several threads. Those that wait for programs (training/env/program.py) are all at
                 work at a time, and `at_once` of them make a batch
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

        `info` of a rollout: its `messages`; the `calls` of tools; where the history was rewritten, `forks`: for each row
        after the first the place of the message that it begins with, and the model's turn (0 the first) whose
        conversation it goes on from, None for none; of programs the `requests`.

        Group id = problem id with its place, so that a problem drawn twice makes two groups. Raises LookupError for a
        problem whose environment or tool was not given, and ValueError for a prompt that leaves no room for a turn.
        """
        jobs = [(g, i) for g in range(len(problems)) for i in range(samples)]
        done: list[list[Rollout]] = [[] for _ in problems]
        hosts = [self.envs[p.env] for p in problems if p.env in self.envs]
        size = min([self.batch_size, *(e.at_once for e in hosts if is_live(e))])
        sampling = threading.Lock()  # one turn is sampled at a time, whoever waits

        def one(part: list[tuple[int, int]]) -> list[Rollout]:
            seeds = [seed_for(*seed, problems[g].id, g, i) for g, i in part]
            opened = [openings[g] if len(openings) else np.zeros(0, dtype=np.int64) for g, _ in part]
            return self._batch(
                [problems[g] for g, _ in part], [f"{problems[g].id}/{g}" for g, _ in part], seeds, opened, sampling
            )

        with _mapping(self.concurrent_batches) as each:
            for (g, _), rollout in zip(
                jobs, (r for batch in each(one, _parts(jobs, size)) for r in batch), strict=True
            ):
                done[g].append(rollout)
        return [Group(id=f"{p.id}/{g}", rollouts=tuple(r)) for g, (p, r) in enumerate(zip(problems, done, strict=True))]

    def _batch(  # noqa: C901 (all conversations of a batch share its sessions)
        self,
        problems: list[Problem],
        groups: list[str],
        seeds: list[int],
        opened: list[np.ndarray],
        sampling: threading.Lock,
    ) -> list[Rollout]:
        """One rollout per problem, turn by turn, all that are alive in one batch."""
        missing = sorted({p.env for p in problems} - set(self.envs))
        if missing:
            lost = next(p.id for p in problems if p.env == missing[0])
            raise LookupError(f"problem {lost} plays in the environment {missing[0]!r}, which this run was not given")
        envs = [self.envs[p.env] for p in problems]
        states: list[dict] = [{} for _ in problems]
        live = [is_live(env) for env in envs]
        n = len(problems)
        # Environments that wait for a program are all at work at a time, the others `calls` of them.
        with _mapping(self.calls) as each, _mapping(sum(live)) as together, _closing(envs, states):

            def start(i: int) -> list[Message]:
                states[i], shown = envs[i].start(problems[i], self.tools)
                return list(shown)

            waiting = [i for i in range(n) if live[i]]
            begun = dict(zip(waiting, together(start, waiting), strict=True))
            messages = [begun[i] if live[i] else start(i) for i in range(n)]
            offered = [state.pop("offered", ()) for state in states]
            asked = [(tuple(m), json.dumps(t)) for m, t in zip(messages, offered, strict=True)]
            rendered: dict[Any, np.ndarray] = {}  # samples of a prompt ask the same
            for key, shown, tools in zip(asked, messages, offered, strict=True):
                if key not in rendered:
                    rendered[key] = self.renderer.prompt(shown, tools)
            prompts = [np.concatenate([rendered[key], x]) for key, x in zip(asked, opened, strict=True)]
            scores: list[Score | None] = [state.pop("over", None) for state in states]
            for i, (problem, ids) in enumerate(zip(problems, prompts, strict=True)):
                if len(ids) + self.sampling.max_tokens > self.max_tokens and scores[i] is None:
                    if live[i]:  # what a program asks may be of its own making
                        scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                        continue
                    raise ValueError(
                        f"the prompt of problem {problem.id} has {len(ids)} tokens: with {self.sampling.max_tokens} for a turn that is more "
                        f"than max_tokens = {self.max_tokens} of a conversation; raise it or leave the problem out"
                    )
            segments: list[list[Segment]] = [[Segment(ids=ids, role="env")] for ids in prompts]
            used = [len(p) for p in prompts]
            seconds = [[0.0] * len(m) for m in messages]
            forks: list[list[tuple[int, int | None]]] = [[] for _ in problems]

            def step(item: tuple[int, str]) -> tuple[tuple[Sequence[Message], bool, Score | None], float]:
                begun = time.perf_counter()
                return envs[item[0]].step(states[item[0]], item[1]), time.perf_counter() - begun

            sessions: list[tuple[Session, dict[int, int]]] = []  # each with its conversations and their places in it
            if alive := [i for i in range(n) if scores[i] is None]:
                with sampling:
                    first = self.sampler.open([prompts[i] for i in alive], [seeds[i] for i in alive])
                    sessions = [(first, {i: place for place, i in enumerate(alive)})]
            while sessions:
                turns: list[tuple[int, Segment, float]] = []
                with sampling:
                    for session, rows in sessions:
                        begun = time.perf_counter()
                        sampled = session.generate(self.sampling)
                        spent = time.perf_counter() - begun
                        turns += [(i, segment, spent) for i, segment in zip(rows, sampled, strict=True)]
                acted: dict[int, str] = {}
                shortened: set[int] = (
                    set()
                )  # whose turn was cut after it was sampled: the sampler holds more than the row
                for i, segment, spent in turns:
                    segment, text, cut = self._shortened(
                        segment,
                        opened[i] if len(segments[i]) == 1 else segment.ids[:0],
                        states[i].pop("most", None),
                        states[i].pop("stops", ()),
                    )
                    segments[i].append(segment)
                    messages[i].append(Message(role="assistant", content=text))
                    seconds[i].append(spent)
                    if cut:
                        shortened.add(i)
                    if segment.stop == "lost":
                        scores[i] = Unscorable(reason="engine_lost: the engine gave no answer, twice")
                    elif segment.stop == "length" and not live[i]:  # an unfinished turn is never acted on
                        scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                    else:
                        acted[i] = text
                        if live[i]:
                            states[i] |= {"segment": segment, "prompt_tokens": used[i]}
                            if states[i].pop("logprobs", False):
                                states[i]["tokens"] = [
                                    self.renderer.decode(segment.ids[k : k + 1]) for k in range(len(segment.ids))
                                ]
                observed: dict[int, np.ndarray] = {}
                reopened: dict[int, np.ndarray] = {}  # what the sampler no longer holds: its whole ids
                answered = {
                    **dict(zip(order := [i for i in acted if live[i]], together(step, [(i, acted[i]) for i in order]))),
                    **dict(zip(order := [i for i in acted if not live[i]], each(step, [(i, acted[i]) for i in order]))),
                }
                for i in acted:
                    (replies, over, score), spent = answered[i]
                    scores[i] = score
                    segment = segments[i][-1]
                    segments[i][-1] = replace(segment, reward=states[i].pop("step_reward", None))
                    history = states[i].pop("history", None)
                    follows = states[i].pop("follows", None)
                    tools = states[i].pop("offered", ())
                    written = replies if history is None else history
                    shown_from = len(messages[i])
                    messages[i].extend(written)
                    seconds[i].extend([spent, *[0.0] * (len(written) - 1)] if written else [])
                    if over:
                        segments[i] = judged(segments[i], states[i].pop("turn_rewards", None))
                        continue
                    fork = history is not None
                    if history is not None:
                        ids = self.renderer.prompt(history, tools)
                    else:
                        ids = self.renderer.observation(replies)
                        wrote = [k for k, s in enumerate(segments[i]) if s.role == "model"]
                        end = wrote[-1 if follows is None else follows]
                        if segments[i][end].ids[-1] != self.renderer.end_id:
                            ids = np.append(self.renderer.end_id, ids)  # what ends a turn was not written
                        fork = end != wrote[-1]
                        if fork:
                            ids = np.concatenate([_row_until(segments[i], end), ids])
                    used[i] = len(ids) + (0 if fork else used[i] + len(segment.ids))
                    if used[i] + self.sampling.max_tokens > self.max_tokens:
                        scores[i] = Scored(value=0.0, parts={"truncated": 1.0})
                        continue
                    segments[i].append(Segment(ids=ids, role="env", context_reset=fork))
                    if fork:
                        forks[i].append((shown_from, follows))
                        reopened[i] = ids
                    elif i in shortened:
                        reopened[i] = _row_until(segments[i], len(segments[i]) - 1)
                    else:
                        observed[i] = ids
                going = [
                    (session, {i: place for i, place in rows.items() if i in observed}) for session, rows in sessions
                ]
                sessions = [(session, rows) for session, rows in going if rows]
                with sampling:
                    for session, rows in sessions:
                        session.observe(list(rows.values()), [observed[i] for i in rows])
                    if reopened:
                        forked = [seed_for(seeds[i], "fork", len(segments[i])) for i in reopened]
                        places = {i: place for place, i in enumerate(reopened)}
                        sessions.append((self.sampler.open(list(reopened.values()), forked), places))
        final = {i: score for i, score in enumerate(scores) if score is not None}  # all: no session is left
        return [
            Rollout(
                problem=problems[i],
                group=groups[i],
                segments=tuple(segments[i]),
                score=final[i],
                text="\n".join(f"[{m.role}] {m.content}" for m in messages[i]),
                info={
                    "calls": states[i].get("calls", 0),
                    "messages": tuple(messages[i]),
                    **({"forks": tuple(forks[i])} if forks[i] else {}),
                    **({"requests": tuple(states[i].get("requests", ()))} if live[i] else {}),
                    **({"seconds": tuple(seconds[i])} if self.timed else {}),
                },
            )
            for i in range(n)
        ]

    def _shortened(
        self, segment: Segment, opened: np.ndarray, most: int | None, stops: Sequence[str]
    ) -> tuple[Segment, str, bool]:
        """The turn up to `most` tokens and to the token that completes one of `stops`, its text without that one, and
        whether anything was cut. opened: ids that the turn begins with. A turn cut so is one that a sampler with these
        limits would have drawn from the same random numbers."""

        def text(k: int) -> str:
            return self.renderer.decode(np.concatenate([opened, segment.ids[:k]]))

        n, why = len(segment.ids), segment.stop
        if most is not None and most < n:
            n, why = most, "length"
        shown = text(n)
        if any(s in shown for s in stops):
            n = next(k for k in range(1, n + 1) if any(s in text(k) for s in stops))
            shown, why = text(n), "stop_string"
            shown = shown[: min(at for s in stops if (at := shown.find(s)) >= 0)]
        if n == len(segment.ids):
            return replace(segment, stop=why) if why != segment.stop else segment, shown, False
        kept = {
            name: getattr(segment, name)[:n]
            for name in ("ids", "logp", "entropy")
            if getattr(segment, name) is not None
        }
        return replace(segment, stop=why, **kept), shown, True


@contextmanager
def _closing(envs: Sequence[Env], states: Sequence[dict]) -> Iterator[None]:
    """Close the episodes of programs that have begun, however the batch ends."""
    try:
        yield
    finally:
        for env, state in zip(envs, states, strict=True):
            if state and is_live(env):
                env.close(state)


def _row_until(segments: Sequence[Segment], end: int) -> np.ndarray:
    """Ids of the row that segment `end` lies in, from its start to that segment's last token."""
    begin = max((k for k in range(end + 1) if segments[k].context_reset), default=0)
    return np.concatenate([s.ids for s in segments[begin : end + 1]])


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
