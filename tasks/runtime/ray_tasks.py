"""Parts of data made by tasks of a Ray cluster: a function of a job for each, on whatever machine has a CPU free.

    with tasks("127.0.0.1:6379", "sft.ray", folder, plan) as pool:
        for result in pool.imap(function, jobs): ...

It is used as a pool of processes is: results come in the order of the jobs, so which machine does one, and when, changes nothing. A
function is one of a module, or a `partial` of it; it and its jobs are pickled, and every machine has the project's code and folder at the
same path. A job whose worker ends, with its machine or alone, is done again, `TRIES` times at most; what a function raises is
raised here.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice, repeat
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol, TypeVar

from synth.in_order import in_order
from tasks.core.errors import UserError
from tasks.runtime.stage import Stage
from tasks.runtime.cluster import LOOK, MARGIN, Cluster, Project, check, enter, given, got
from tasks.runtime.processes import processes
from tasks.storage.finished import Finished, joined
from training.rollout.players import CONTEXT, TRIES, Ended, Late

LIMIT = 3600.0  # seconds until a job is done, the wait for a free CPU included
EACH = 32  # items of one job (`away`), where nothing else is said
MOST = 128  # jobs at a time: each has a pipe and a thread here
A = TypeVar("A")
B = TypeVar("B")


class Pool(Protocol):
    """What maps a function over jobs elsewhere, in their order: of multiprocessing, or a RayPool."""

    def imap(self, func: Callable[[A], B], iterable: Iterable[A]) -> Iterator[B]: ...


class RayPool:
    """Jobs as tasks of a cluster, as many at a time as it has CPUs, MOST at most. A context manager: nothing runs there after it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._idle: deque[Connection] = deque()  # pipes to the process that speaks with Ray
        self._over = threading.Event()

    def __enter__(self) -> RayPool:
        """Raises UserError if the cluster does not take us in."""
        self.cluster.connect()
        self._threads = ThreadPoolExecutor(self._most, "job on Ray")
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._threads.shutdown(cancel_futures=True)
        for pipe in self._idle:
            pipe.close()
        self.cluster.end()

    @property
    def _most(self) -> int:
        return min(max(1, self.cluster.cpus), MOST)

    def imap(self, func: Callable[[A], B], iterable: Iterable[A]) -> Iterator[B]:
        """The results in order; jobs are begun as results are taken, twice as many ahead as are done at a time. Raises what `func` raises,
        UserError where a job ends all its workers, TimeoutError where one takes too long, and ConnectionError if the cluster is gone."""
        running: deque[Future[B]] = deque()
        try:
            for number, job in enumerate(iterable, 1):
                running.append(self._threads.submit(self._done, func, job, number))
                if len(running) >= 2 * self._most:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for future in running:
                future.cancel()

    def _done(self, func: Callable[[A], B], job: A, number: int) -> B:
        request, ended = _packed((func, job)), ""
        for _ in range(TRIES):
            pipe = self._pipe()
            reply: Any
            try:
                kind, reply = self._asked(pipe, request, number)
            except (EOFError, OSError):
                if self._over.is_set():
                    raise
                kind, reply = "ended", "the process that speaks with Ray ended"
            if kind == "done":
                return reply
            if kind == "raised":
                raise reply
            ended = reply
            print(
                f"warning: {self.cluster.where}: job {number} is done again: {ended}",
                file=sys.stderr,
                flush=True,
            )
        raise UserError(
            f"{self.cluster.where}: job {number} ended {TRIES} workers of the Ray cluster ({ended}): look whether its machines have memory "
            f"and disk for it, or leave {self.cluster.where} out"
        )

    def _pipe(self) -> Connection:
        """Raises ConnectionError if the cluster is gone."""
        with contextlib.suppress(IndexError):
            return self._idle.popleft()
        pipe, theirs = CONTEXT.Pipe()
        with theirs:
            self.cluster.give(theirs)
        return pipe

    def _asked(self, pipe: Connection, request: bytes, number: int) -> tuple[str, Any]:
        """("done", result), ("raised", exception) or ("ended", how the worker ended). Raises EOFError or OSError where the process between
        ended."""
        try:
            pipe.send_bytes(request)
            waited = 0.0
            while not pipe.poll(LOOK):
                waited += LOOK
                if self._over.is_set():
                    raise EOFError
                if waited > LIMIT + 2 * MARGIN:
                    raise TimeoutError(f"{self.cluster.where}: waited {waited:g} s for job {number}")
            kind, reply = _unpacked(pipe.recv_bytes())
        except BaseException:
            pipe.close()
            raise
        if kind == "late":
            raise TimeoutError(f"{self.cluster.where}: {reply} (job {number})")
        self._idle.append(pipe)
        return kind, reply


def tasks(address: str, where: str, folder: Path, plan: Path | None = None, log: Path = Path(os.devnull)) -> RayPool:
    """The cluster of an address, for jobs of the project in `folder`; arguments as of `Cluster`."""
    return RayPool(Cluster(address, 1, where, folder.resolve(), plan, _seat, what="tasks", log=log))


def answers(stage: Stage, address: str) -> None:
    """Raises UserError where the knob `ray` of a stage is set and nobody answers there."""
    if address:
        check(address, f"{stage.name}.ray")


@contextlib.contextmanager
def mapping(stage: Stage, address: str, workers: int = 1) -> Iterator[Callable[..., Iterator[Any]]]:
    """What maps a function over jobs of a stage: `map`, that of so many processes, or that of the cluster of its knob `ray`. Raises
    UserError for a cluster that does not take us in."""
    if not address:
        with processes(workers) as imap:
            yield imap
        return
    plan = Path("artifacts", "plan", f"{stage.name}.json")
    with tasks(address, f"{stage.name}.ray", stage.root, plan, stage.work / "ray.log") as pool:
        yield pool.imap


def away(
    imap: Callable[..., Iterator[Any]],
    build: Callable[..., Any],
    of: tuple[Any, ...],
    keys: Iterable[tuple[Any, ...]],
    finished: Finished | None = None,
    ask: Callable[..., Any] | None = None,
    most: int = EACH,
) -> Iterator[Any]:
    """What `build(*of)` makes of each key, in order: built once in a process elsewhere, and called with the key, or `ask(built, *key)`.
    imap: of the pool; finished: stores items by key, and those that it knows are not made again; most: items of one job."""
    there = lambda key: finished is not None and joined(key) in finished  # noqa: E731
    job = partial(_away, build, of, ask)
    of_missing = lambda missing: chain.from_iterable(imap(job, _some(missing, most)))  # noqa: E731
    for key, item in in_order(keys, there, of_missing):
        yield finished(joined(key), lambda item=item: item) if finished is not None else item


def _some(keys: Iterator[tuple[Any, ...]], most: int) -> Iterator[list[tuple[Any, ...]]]:
    """Few at first: what is made beyond what is wanted is thrown away."""
    for n in chain((1 << i for i in range(most.bit_length() - 1)), repeat(most)):
        if not (part := list(islice(keys, n))):
            return
        yield part


_built: tuple[Any, Any] = None, None  # (build, of), and what was built, of a worker


def _away(
    build: Callable[..., Any], of: tuple[Any, ...], ask: Callable[..., Any] | None, keys: list[tuple[Any, ...]]
) -> list[Any]:
    global _built
    if _built[0] != (build, of):
        _built = (build, of), build(*of)
    maker = _built[1]
    return [ask(maker, *key) if ask else maker(*key) for key in keys]


def _seat(ray: Any, pipe: Connection, address: str, project: Project) -> None:
    """Jobs of one pipe, each as a task, until the pipe is closed."""
    remote = ray.remote(_do).options(
        num_cpus=1, max_retries=0, scheduling_strategy="SPREAD", runtime_env=given(), name="part"
    )
    reference = None
    try:
        while True:
            reference = remote.remote(project, pipe.recv_bytes())
            reply = got(
                ray, pipe, reference, LIMIT + MARGIN, f"a free CPU of the Ray cluster at {address}, and the job"
            )
            reference = None
            pipe.send_bytes(reply if isinstance(reply, bytes) else _packed(_other(reply)))
    except (EOFError, OSError):
        pass  # nobody asks any more
    finally:
        pipe.close()
        if reference is not None:
            with contextlib.suppress(Exception):
                ray.cancel(reference, force=True)


def _packed(value: Any) -> bytes:
    return bytes(ForkingPickler.dumps(value))


def _unpacked(data: bytes) -> Any:
    return ForkingPickler.loads(data)  # type: ignore[misc] (a function of the C module)


def _other(reply: Any) -> tuple[str, Any]:
    if isinstance(reply, Ended):
        return "ended", str(reply)
    return ("late", str(reply)) if isinstance(reply, Late) else ("raised", reply)


def _do(project: Project, request: bytes) -> bytes:
    """The task: ("done", result) or ("raised", exception), pickled."""
    try:
        enter(*project)
        func, job = _unpacked(request)
        return _packed(("done", func(job)))
    except BaseException as e:
        if not isinstance(e, UserError):
            e.add_note(f"in a task of a Ray cluster:\n{traceback.format_exc()}")
        try:
            _unpacked(reply := _packed(("raised", e)))  # some can be sent and not be made anew
        except Exception:
            reply = _packed(("raised", RuntimeError("".join(traceback.format_exception(e)))))
        return reply
