"""Episodes of agent programs: each runs at its own pace, and all that wait for a turn at the same time are sampled
together.

`at_once` programs run, each with a thread that waits for it; when one ends, the next begins. A turn that is requested
while others are sampled is in the next batch, with all that have arrived since, so no program waits for the slowest.
Which turns share a batch depends on timing, but the sampled tokens do not: each conversation draws from its own random
stream, keyed by its seed and the number of its turn (up to rounding if the sampler is not compiled: a matrix product of
another size may differ in the last bit).

An engine in another process that batches by itself (`elsewhere`) is called from each program's own thread.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.env import is_live
from training.rollout.conversation import Conversation
from training.types import Rollout

Player = Any  # training/rollout/play.py, which imports this


def play_live(player: Player, talks: Sequence[Conversation]) -> list[Rollout]:
    """One rollout of each conversation, all of them of programs."""
    places = min(len(talks), *(t.env.at_once for t in talks if is_live(t.env)))
    with ThreadPoolExecutor(places, thread_name_prefix="program") as pool, closing(talks):
        if getattr(player.sampler, "elsewhere", False):
            list(pool.map(lambda talk: _by_itself(player, talk), talks))
        else:
            _together(player, talks, pool, places)
    return [talk.rollout(player.timed) for talk in talks]


@dataclass
class _Held:
    """A session, and the index of each conversation in it."""

    session: Any  # of the sampler
    places: dict[int, int]


def _together(player: Player, talks: Sequence[Conversation], pool: ThreadPoolExecutor, places: int) -> None:
    heard: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    next_ones, at_work = deque(range(len(talks))), 0
    held: list[_Held] = []

    def work(i: int, act: Callable[[], Any]) -> None:
        nonlocal at_work
        at_work += 1

        def acted() -> None:
            try:
                heard.put((i, act()))
            except BaseException as e:  # noqa: BLE001 (raised again where it is heard)
                heard.put((i, e))

        pool.submit(acted)

    def begin() -> None:
        if next_ones:
            i = next_ones.popleft()
            work(i, lambda: _begun(player, talks[i]))

    for _ in range(places):
        begin()
    while at_work:
        told: dict[int, np.ndarray] = {}
        whole: list[tuple[int, np.ndarray, int]] = []  # conversations in no session: their ids, and a seed
        for i, event in _all_that_wait(heard):
            at_work -= 1
            if isinstance(event, BaseException):
                raise event
            if event is None:
                for one in held:
                    one.places.pop(i, None)
                begin()
            elif event[1] is None:
                told[i] = event[0]
            else:
                for one in held:  # for a fork, the row before is over
                    one.places.pop(i, None)
                whole.append((i, *event))
        for i, segment, seconds in _sampled(player, held, told, whole):
            work(i, lambda i=i, s=segment, t=seconds: _acted(talks[i], s, t))


def _sampled(
    player: Player, held: list[_Held], told: dict[int, np.ndarray], whole: list[tuple[int, np.ndarray, int]]
) -> Iterator[tuple[int, Any, float]]:
    """(conversation, its turn, wall seconds of the batch) of all waiting conversations."""
    held[:] = [one for one in held if one.places]
    for one in held:
        mine = [i for i in one.places if i in told]
        one.session.observe([one.places[i] for i in mine], [told[i] for i in mine])
        if whole and getattr(one.session, "joins", False):
            new = one.session.join(list(one.places.values()), [ids for _, ids, _ in whole], [s for *_, s in whole])
            one.places |= zip((i for i, *_ in whole), new, strict=True)
            told |= {i: ids for i, ids, _ in whole}
            whole = []
    if whole:
        session = player.sampler.open([ids for _, ids, _ in whole], [seed for *_, seed in whole])
        held.append(_Held(session, {i: place for place, (i, *_) in enumerate(whole)}))
        told |= {i: ids for i, ids, _ in whole}
    for one in held:
        if not (mine := [i for i in one.places if i in told]):
            continue
        begun = time.perf_counter()
        segments = one.session.generate(player.sampling)
        seconds = time.perf_counter() - begun
        for i, segment in zip(mine, segments, strict=True):
            yield i, segment, seconds


def _by_itself(player: Player, talk: Conversation) -> None:
    """Plays a whole episode in the thread of its program."""
    went_on, session = _begun(player, talk), None
    while went_on is not None:
        ids, seed = went_on
        if seed is not None or session is None:
            session = player.sampler.open([ids], [talk.seed if seed is None else seed])
        else:
            session.observe([0], [ids])
        begun = time.perf_counter()
        (segment,) = session.generate(player.sampling)
        went_on = _acted(talk, segment, time.perf_counter() - begun)


def _begun(player: Player, talk: Conversation) -> tuple[np.ndarray, int | None] | None:
    """Start an episode: the ids of its first prompt and its seed, or None if it is over."""
    talk.start(player.tools)
    talk.prompted(player.renderer.prompt(talk.messages, talk.offered))
    return None if talk.score is not None else (talk.segments[0].ids, talk.seed)


def _acted(talk: Conversation, segment: Any, seconds: float) -> tuple[np.ndarray, int | None] | None:
    """Hand a turn to the program and wait for its next request: the ids that continue the sampler's row, or a whole row
    and its seed; None if the episode is over."""
    text = talk.turn(segment, seconds)
    if text is None:
        return None
    begun = time.perf_counter()
    answer = talk.env.step(talk.state, text)
    went_on = talk.answered(*answer, time.perf_counter() - begun)
    if went_on is None:
        return None
    ids, unheld = went_on
    return ids, talk.fork_seed if unheld else None


def _all_that_wait(heard: queue.SimpleQueue[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """At least one, and all that have arrived by now."""
    yield heard.get()
    while True:
        try:
            yield heard.get_nowait()
        except queue.Empty:
            return


@contextmanager
def closing(talks: Sequence[Conversation]) -> Iterator[None]:
    """Close the episodes that have begun in other processes, however the block ends."""
    try:
        yield
    finally:
        for talk in talks:
            if talk.state and (close := getattr(talk.env, "close", None)):
                close(talk.state)
