"""Bytes of Python's objects, counted in a process of its own: tracemalloc that starts or stops while another thread
allocates can end the process with a segmentation fault (CPython 3.11), and tests before may have left threads."""

from __future__ import annotations

import gc
import os
import pickle
import traceback
import tracemalloc
from collections.abc import Callable
from typing import Any


def traced(work: Callable[[], Any]) -> tuple[int, int]:
    """(bytes that are held while what `work` returns lives, the most at any time)."""
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told: Any = _counted(work)
        except BaseException:
            told = traceback.format_exc()
        with os.fdopen(here, "wb") as out:
            out.write(pickle.dumps(told))
        os._exit(0)
    os.close(here)
    with os.fdopen(there, "rb") as reader:
        data = reader.read()
    os.waitpid(pid, 0)
    told = pickle.loads(data) if data else "the process that counts died"
    if isinstance(told, str):
        raise AssertionError(told)
    return told


def _counted(work: Callable[[], Any]) -> tuple[int, int]:
    tracemalloc.start()
    kept = work()
    gc.collect()
    counted = tracemalloc.get_traced_memory()
    del kept
    return counted
