"""Processes: finds the one that started this process, ends this process when that one is gone, and runs others so that
none is left behind.

DVC starts a stage through a shell and, when it is killed, leaves the stage running: it would write its outputs into a
checkout that has moved on. So a stage watches the process that started it, once a second by process id.
`prctl(PR_SET_PDEATHSIG)` is not used: it fires on the end of the parent's *thread*, exists on Linux only, and never
sees that the process above an intermediate shell has died.

What `ending_with_us(MODULE, ARGS)` gives is `python -m MODULE ARGS` that ends, with all that it has started, when the
process that wrote the command is gone, be it before the command could look; where it does not lead a process group of
its own, it ends alone.
"""

from __future__ import annotations

import contextlib
import os
import queue
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

GRACE = 10.0  # seconds between asking a process to end and ending it
SHELLS = {"sh", "dash", "bash", "zsh", "fish", "ksh", "ash"}
STARTER = "ESPALIER_STARTER"  # "pid/started" of the last command of `ending_with_us` above a process


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    started: str  # tells a process from a later one with its id


def look(pid: int) -> Process | None:
    """The process `pid`, or None if it does not exist or is a zombie."""
    try:
        seen = psutil.Process(pid)
        with seen.oneshot():
            if seen.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                return None
            return Process(pid, seen.ppid(), seen.name(), _identity(seen))
    except (psutil.NoSuchProcess, FileNotFoundError):  # ZombieProcess is one of them; its files may go while read
        return None


def _identity(process: psutil.Process) -> str:
    """psutil's hash of the id and the start in ticks of the kernel: the same in every process that asks. Its
    `create_time` moves whenever the clock of the machine is set."""
    return f"{hash(process) % 2**64:x}"


def starters() -> list[Process]:
    """The processes whose end ends this one: the parent and, if that is a shell, the process that runs the shell. The
    last is the one in control."""
    chain: list[Process] = []
    seen = look(os.getppid())
    while seen is not None and seen.pid > 1:
        chain.append(seen)
        if seen.name.lstrip("-") not in SHELLS:
            break
        seen = look(seen.parent)
    return chain


def alive(pid: int, started: str) -> bool:
    """Whether the noted process is still running, and not a later one with the same id."""
    now = look(pid)
    return now is not None and now.started == started


def end_with(chain: list[Process], every: float = 1.0, group: bool = False) -> None:
    """Starts a thread that ends this process (SIGTERM, then SIGKILL after GRACE seconds) once a process of `chain` is
    gone; with `group`, it ends the whole process group."""
    target = 0 if group else os.getpid()  # 0: every process of our own group

    def watch() -> None:
        while all(alive(p.pid, p.started) for p in chain):
            time.sleep(every)
        os.kill(target, signal.SIGTERM)
        time.sleep(GRACE)
        os.kill(target, signal.SIGKILL)

    if chain:
        threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def end_with_starters() -> None:
    """A stage calls this first: it then ends when the processes that started it are gone, and at once if DVC was gone
    before it could look.

    A DVC that we started left its name in the environment. One that a user started did not: there a stage is alone
    that has no more than a shell above it, unless process 1, which takes over whom nobody waits for, may be DVC.
    """
    chain = starters()
    if STARTER in os.environ:
        dvc = _named(os.environ[STARTER])
        alone = dvc is None
        chain += [dvc] if dvc else []
    else:
        first = look(1)
        alone = (
            "DVC_ROOT" in os.environ
            and (not chain or chain[-1].name.lstrip("-") in SHELLS)
            and not (first and first.name.startswith(("dvc", "python")))
        )
    if alone:
        os.kill(os.getpid(), signal.SIGTERM)
    end_with(chain)


def ending_with_us(module: str, *args: str) -> list[str]:
    """The command `python -m module args`, which ends as soon as this process is gone."""
    return [sys.executable, "-P", "-m", "tasks.runtime.process", _name(), module, *args]


def _name() -> str:
    """The name by which another process can find this one: "pid/started"."""
    us = look(os.getpid())
    assert us is not None
    return f"{us.pid}/{us.started}"


def _named(name: str) -> Process | None:
    """The process of that name, None if it is gone."""
    pid, _, started = name.partition("/")
    process = look(int(pid))
    return process if process and process.started == started else None


def run_group(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    each: Callable[[str], None],
    seconds: float | None = None,
    stopped: Callable[[], bool] | None = None,
) -> int:
    """Runs a command in its own process group, passes every printed line to `each`, and returns the exit code.

    However this ends (the end of the command, an exception out of `each`, a signal that raises here), no process of the
    group is left. Raises TimeoutError when `seconds` are over, and InterruptedError once `stopped` says so.
    """
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(child, lines), name="lines", daemon=True).start()
    until = None if seconds is None else time.monotonic() + seconds
    try:
        while True:
            if stopped is not None and stopped():
                raise InterruptedError
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                line = lines.get(timeout=left if stopped is None else min(0.5, 0.5 if left is None else left))
            except queue.Empty:
                if until is None or time.monotonic() < until:
                    continue
                raise TimeoutError(
                    f"it did not end within {seconds:g} seconds, and was ended with all that it had started"
                ) from None
            if line is None:
                return child.wait()
            each(line)
    finally:
        end_group(child.pid)
        child.wait()


def _read(child: subprocess.Popen[bytes], lines: queue.SimpleQueue[str | None]) -> None:
    assert child.stdout is not None
    with child.stdout as text:
        for line in text:
            lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def end_group(group: int, grace: float = GRACE) -> None:
    """Ends every process of a group, and returns when they have ended (one that the kernel holds is waited for GRACE seconds):
    SIGTERM, then SIGKILL for those still running `grace` seconds later; with `grace=0` SIGKILL alone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if grace:
            os.killpg(group, signal.SIGTERM)
            _gone(group, grace)
        os.killpg(group, signal.SIGKILL)
        _gone(group, GRACE)


def _gone(group: int, seconds: float) -> None:
    """Wait until no process of the group is alive, for so long at most."""
    until = time.monotonic() + seconds
    while _members(group) and time.monotonic() < until:
        time.sleep(0.01)


def _members(group: int) -> bool:
    """Whether a process of the group is alive (zombies are not)."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) == group and look(pid) is not None:
                return True
    return False


def _begin(starter: str) -> None:
    """End with `starter` ("pid/started"), and with the shells between it and us; at once where it is gone already."""
    above = _named(starter)
    if above is None:
        os.kill(os.getpid(), signal.SIGTERM)
        return
    end_with(
        [above], group=os.getpgrp() == os.getpid()
    )  # a group that is not our own holds others: the shell script that began it all


if __name__ == "__main__":
    _begin(sys.argv[1])
    os.environ[STARTER] = _name()
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
