"""A few child processes in which verifiers that do more than linear work score answers, each killed when it exceeds its
limits.

It uses no signals and no own threads, so it works in any thread: a caller takes an idle child (or starts one, up to
`size`), writes one JSON line, and waits for one line with a clock. The kernel limits CPU time (so a busy machine does
not fail an answer), and the address space limits memory.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

from synth.types import Problem, Score, Scored, Unscorable, to_row

WALL = 30.0
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from synth.verify._worker import main; main()"


class Pool:
    """At most `size` children; further callers wait for an idle one."""

    def __init__(self, size: int) -> None:
        self._idle: queue.LifoQueue[subprocess.Popen | None] = queue.LifoQueue()
        for _ in range(size):
            self._idle.put(None)  # a place in which no child was started yet

    def score(self, problem: Problem, answer: str, seconds: int) -> Score:
        """The verdict of the problem's verifier under `seconds` of CPU time. A child that exceeds a limit is killed and
        the answer is wrong with `parts["timeout"]`; if the wall clock runs out first, it is the machine's fault:
        Unscorable."""
        if len(answer) > 100_000:
            return Scored(value=0.0, parts={"parsed": 0.0})
        reply, late = self._reply({"problem": to_row(problem), "answer": answer, "seconds": seconds})
        if late:
            return Unscorable(reason=f"timeout: no verdict within {WALL} s on the clock")
        if reply is None:
            return Scored(value=0.0, parts={"parsed": 1.0, "timeout": 1.0})
        return (
            Unscorable(reason=reply["reason"])
            if "reason" in reply
            else Scored(value=reply["value"], parts=reply["parts"])
        )

    def query(
        self, tables: Mapping[str, Any], sql: str, *, steps: int, length: int, rows: int, seconds: int = 5
    ) -> tuple[list[str], int]:
        """(the first `rows` rows as text, how many there are) of a reading query (`synth.verify._database.shown`), in a
        child: its memory is never used by this process. Raises ValueError for a query that cannot be run within the
        limits, TimeoutError where the clock runs out first."""
        limits = {"tables": tables, "sql": sql, "steps": steps, "length": length, "rows": rows}
        reply, late = self._reply({"query": limits, "seconds": seconds})
        if late:
            raise TimeoutError(f"no rows within {WALL} s on the clock")
        if reply is None:
            raise ValueError("the query takes too much time or memory")
        if "error" in reply:
            raise ValueError(reply["error"])
        return reply["lines"], reply["total"]

    def _reply(self, job: Mapping[str, Any]) -> tuple[dict | None, bool]:
        """(the reply of a child, whether the clock ran out); no reply where a limit was exceeded."""
        line = json.dumps(job).encode() + b"\n"
        child = self._idle.get()
        try:
            if child is None or child.poll() is not None:
                child = _start()
            return _ask(child, line)
        finally:
            if child is not None and child.poll() is None and not child.stdin.closed:  # type: ignore[union-attr]
                self._idle.put(child)
            else:
                self._idle.put(None)

    def close(self) -> None:
        """Kill every idle child."""
        while not self._idle.empty():
            child = self._idle.get_nowait()
            if child is not None:
                _kill(child)


def _start() -> subprocess.Popen:
    command = [sys.executable, "-s", "-P", "-B", "-c", _START, json.dumps(sys.path)]
    return subprocess.Popen(
        command,
        env={"PYTHONHASHSEED": "0"},  # a verdict may not depend on the process it was made in
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _ask(child: subprocess.Popen, line: bytes) -> tuple[dict | None, bool]:
    """(reply, whether the clock ran out); no reply where the child died. A child that gave none is dead afterwards."""
    end, data = time.monotonic() + WALL, b""
    fd = child.stdout.fileno()  # type: ignore[union-attr]
    try:
        child.stdin.write(line)  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
    except BrokenPipeError:
        _kill(child)
        return None, False
    while not data.endswith(b"\n"):
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            _kill(child)
            return None, True
        piece = os.read(fd, 65_536)
        if not piece:
            _kill(child)
            return None, False
        data += piece
    return json.loads(data), False


def _kill(child: subprocess.Popen) -> None:
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.stdin.close()  # type: ignore[union-attr]
    child.stdout.close()  # type: ignore[union-attr]
    child.wait()


_LOCK = threading.Lock()


def shared() -> Pool:
    """The pool of this process, one child for each core, made at the first call. A forked child makes its own."""
    with _LOCK:
        return _pool(os.getpid())


@cache
def _pool(pid: int) -> Pool:
    pool = Pool(os.cpu_count() or 1)
    atexit.register(pool.close)
    return pool
