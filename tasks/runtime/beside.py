"""Work beside this process, in a copy of it: what is in memory is shared with the copy, not sent to it."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

from tasks.core.errors import UserError, ended_by

T = TypeVar("T")


def can_fork() -> bool:
    """Whether a copy of this process gains time and is safe: two cores, and no other thread of Python, which could hold a
    lock that the copy would wait for."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    return cores > 1 and threading.active_count() == 1


@contextmanager
def beside(what: str, work: Callable[[], T]) -> Iterator[Callable[[], T]]:
    """A function that returns what `work` returns. It runs in a copy of this process beside the block, or where `can_fork`
    says no in this one before it; the copy is ended if the block is left before it is.

    what   for the message if something ends the copy: "the tables". Raises what `work` raises, and UserError if the
           copy is killed (a process without memory left, say). What it returns must be picklable.
    """
    if not can_fork():
        value = work()
        yield lambda: value
        return
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    copy = context.Process(target=_answer, args=(work, theirs), daemon=True)
    copy.start()
    theirs.close()

    def answer() -> T:
        try:
            done, value = ours.recv()
        except EOFError:
            copy.join()
            raise UserError(
                f"{what}: the process that writes them was ended by {ended_by(copy.exitcode or 0)}; run it again"
            ) from None
        if not done:
            raise value
        return value

    try:
        yield answer
    finally:
        copy.kill()
        copy.join()
        ours.close()


def _answer(work: Callable[[], T], to: Connection) -> None:
    try:
        value = True, work()
    except Exception as error:
        value = False, error
    to.send(value)
    to.close()
