"""Processes: who started this one, and ending it when that one is gone.

DVC starts a stage through a shell and, when it is killed, leaves the stage running: it would write its outputs into a
checkout that has moved on. So a stage watches the process that started it, once a second by process id.
`prctl(PR_SET_PDEATHSIG)` is not used: it fires on the end of the parent's *thread*, exists on Linux only, and never
sees that the process above an intermediate shell has died.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

SHELLS = {"sh", "dash", "bash", "zsh", "fish", "ksh", "ash"}


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    started: str  # tells a process from a later one with its id


def look(pid: int) -> Process | None:
    """The process `pid`, or None where there is none (a zombie is none)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _ask_ps(pid)
    name, _, rest = text.partition("(")[2].rpartition(")")
    field = rest.split()  # field[0] is entry 3 of proc(5)
    return None if field[0] in "ZX" else Process(pid, int(field[1]), name, field[19])


def _ask_ps(pid: int) -> Process | None:
    done = subprocess.run(["ps", "-o", "stat=,ppid=,lstart=,comm=", "-p", str(pid)], capture_output=True, text=True)
    field = done.stdout.split()
    if done.returncode or len(field) < 8 or field[0].startswith("Z"):
        return None
    return Process(pid, int(field[1]), Path(" ".join(field[7:])).name, " ".join(field[2:7]))


def starters() -> list[Process]:
    """The processes whose end ends this one: the parent, and above a shell the process that runs it. The last is the
    one that gives orders."""
    chain: list[Process] = []
    seen = look(os.getppid())
    while seen is not None and seen.pid > 1:
        chain.append(seen)
        if seen.name.lstrip("-") not in SHELLS:
            break
        seen = look(seen.parent)
    return chain


def end_with(chain: list[Process], every: float = 1.0) -> None:
    """Start a thread that ends this process (SIGTERM, then SIGKILL after ten seconds) once a process of `chain` is gone."""

    def watch() -> None:
        while all((now := look(p.pid)) is not None and now.started == p.started for p in chain):
            time.sleep(every)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10.0)
        os.kill(os.getpid(), signal.SIGKILL)

    if chain:
        threading.Thread(target=watch, name="parent-watch", daemon=True).start()
