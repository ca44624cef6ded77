"""Jobs in processes of this machine, as `ray_tasks` does them on others."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from tasks.core.errors import UserError


@contextmanager
def processes(n: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` over n processes, `map` itself for one: results come in the order of the jobs, and jobs are begun as results are taken,
    twice as many ahead as are done at a time. A function is one of a module, or a `partial` of it.

    Raises what the function raises, and UserError where a process ends before its job.
    """
    if n == 1:
        yield map
        return
    pool = ProcessPoolExecutor(n, multiprocessing.get_context("spawn"))

    def imap(func: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        running: deque[Future[Any]] = deque()
        try:
            for job in jobs:
                running.append(pool.submit(func, job))
                if len(running) >= 2 * n:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                f"one of {n} processes ended before its work was done: where memory ran out, ask for fewer workers; what is "
                "finished is kept, so the same command goes on from there"
            ) from error
        finally:
            for future in running:
                future.cancel()

    try:
        yield imap
    finally:
        pool.shutdown(cancel_futures=True)
