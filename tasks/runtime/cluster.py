"""A Ray cluster, as a stage or a command uses it: players of `rl` (tasks/models/ray_players.py) and parts of data
(tasks/runtime/ray_tasks.py) run on its machines.

One process beside the user speaks with Ray, since a client of Ray takes the signal SIGTERM for itself, and ends with its
cluster: a stage must do neither. It has a pipe to the stage for each seat, which it serves in a thread of its own, and ends with
the stage; Ray then ends what runs there. Ray never repeats anything by itself (no restarts, no retries).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.planning import pieces
from training.rollout.players import CONTEXT, GRACE, Ended, Late, end_with_starter

ANSWER = 5.0  # seconds until somebody answers at an address
CONNECT = 120.0  # seconds until the cluster has this process as its client
MARGIN = 30.0  # seconds by which a wait here is longer than the same wait on the machine where the work is done
LOOK = 0.5  # seconds between looks at whether a request is still wanted
PASSED = ("ESPALIER_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED")  # variables that go along
# What Ray raises where a worker, or its machine, ended.
GONE = ("WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "ObjectLostError")
Project = tuple[str, str, str]  # folder, a file of it or "", the digest of that file


def check(address: str, where: str) -> None:
    """Raises UserError, which names the knob `where`, if Ray is not installed or nobody answers at the address."""
    if find_spec("ray") is None:
        raise UserError(
            f"{where} is {address}, and Ray is not installed: `pip install -c constraints.txt -e '.[ray]'`, or leave "
            f"{where} out to work on this machine"
        )
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except OSError as e:
        raise UserError(
            f"{where}: nobody answers at {address} within {ANSWER:g} s ({e.strerror or e}): start the cluster with `ray start "
            f"--head`, which prints its address, or leave {where} out to work on this machine"
        ) from None


@dataclass(eq=False)
class Cluster:
    """The process that speaks with the Ray cluster of an address. Thread-safe.

    n        seats that the cluster needs room for
    where    the knob that named it, for messages
    folder   of the project, at the same path on every machine
    plan     a file of it that must be the same on every machine; None: no file
    seat     serves one pipe of the stage: called with the module ray, the pipe, the address and the project; it returns once
             nobody asks any more
    what     sits there, for messages
    log      file for what Ray says

    cpus     of the cluster, once it is connected
    """

    address: str
    n: int
    where: str
    folder: Path
    plan: Path | None
    seat: Callable[[Any, Connection, str, Project], None]
    what: str = "players"
    log: Path = Path(os.devnull)
    cpus: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    process: Any = field(default=None, init=False, repr=False)
    _control: Any = field(default=None, init=False, repr=False)

    def connect(self) -> None:
        """Raises UserError if the cluster refuses, and TimeoutError if it takes too long."""
        check(self.address, self.where)
        self._control, theirs = CONTEXT.Pipe()
        same = (str(self.plan), digest(self.folder / self.plan)) if self.plan else ("", "")
        self.process = CONTEXT.Process(
            target=_drive,
            args=(theirs, self.address, self.n, self.where, self.what, (str(self.folder), *same), self.seat, self.log),
            name=f"{self.what} on Ray",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        try:
            reply = (
                self._control.recv()
                if self._control.poll(CONNECT)
                else TimeoutError(
                    f"{self.where}: waited {CONNECT:g} s for the Ray cluster at {self.address} to take this run in"
                )
            )
        except (EOFError, OSError):
            reply = ConnectionError(
                f"{self.where}: the process that speaks with Ray ended before it was connected (see {self.log})"
            )
        if isinstance(reply, BaseException):
            self.end()
            raise reply
        self.cpus = reply

    def give(self, pipe: Connection) -> None:
        """Have a seat at the other end of this pipe; connects anew where the process has ended. Raises
        ConnectionError if the cluster is gone."""
        with self._lock:
            with contextlib.suppress(BrokenPipeError):
                if self.process is not None:
                    return self._hand(pipe)
            self.end()
            try:
                self.connect()
            except UserError as e:  # it had answered before: a mistake of nobody
                raise ConnectionError(str(e)) from None
            self._hand(pipe)

    def _hand(self, pipe: Connection) -> None:
        reduction.send_handle(self._control, pipe.fileno(), 0)

    def end(self) -> None:
        """End the process and what runs on the cluster for it; a second call does nothing."""
        process, self.process = self.process, None
        if process is None:
            return
        self._control.close()
        process.join(2 * GRACE + MARGIN)
        process.kill()
        process.join()


def enter(folder: str, plan: str, same: str) -> None:
    """Work in the project's folder. Raises UserError if this machine has it not, or in another state."""
    here = f"the machine {socket.gethostname()} of the Ray cluster"
    if not Path(folder).is_dir():
        raise UserError(
            f"{here} has no folder {folder}: the project is read at the same path on every machine: share its file system"
        )
    if plan and digest(Path(folder) / plan) != same:
        raise UserError(f"{here} has another {plan} in {folder} than this one: share the project's file system")
    os.chdir(folder)
    pieces.open_own()


def given() -> dict[str, Any]:
    """The environment of what runs on the cluster, as Ray takes it."""
    env = {k: os.environ[k] for k in PASSED if k in os.environ}
    env["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return {"env_vars": env}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _drive(
    control: Connection,
    address: str,
    n: int,
    where: str,
    what: str,
    project: Project,
    seat: Callable[[Any, Connection, str, Project], None],
    log: Path,
) -> None:
    """The process that speaks with Ray: a seat for each pipe that it is given, until `control` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the stage's to answer
    threading.Thread(target=end_with_starter, daemon=True).start()
    pieces.open_own()  # what is raised over there may be defined in them
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    try:
        ray = _connected(address, n, where, what)
    except UserError as e:
        control.send(e)
        return
    control.send(int(ray.cluster_resources().get("CPU", 0)))
    seats: list[threading.Thread] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe = Connection(reduction.recv_handle(control))
            seats.append(threading.Thread(target=seat, args=(ray, pipe, address, project), daemon=True))
            seats[-1].start()
    until = time.monotonic() + 2 * GRACE
    for one in seats:
        one.join(max(0.0, until - time.monotonic()))
    ray.shutdown()


def _connected(address: str, n: int, where: str, what: str) -> Any:
    """The module ray, connected. Raises UserError if the cluster refuses, or is too small."""
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as e:
        reason = str(e).strip().splitlines()
        raise UserError(
            f"{where}: the Ray cluster at {address} refused this machine ({reason[0] if reason else type(e).__name__}): make it "
            "one of the cluster's with `ray start --address=...`, with the same Python, Ray and token (docs/scaling.md)"
        ) from None
    if (cpus := ray.cluster_resources().get("CPU", 0)) < n:
        ray.shutdown()
        raise UserError(
            f"{where}: the Ray cluster at {address} has {cpus:g} CPUs, and {n} {what} take one each: start more machines of it "
            f"with `ray start --address=...`, or lower {what}"
        )
    return ray


def got(ray: Any, pipe: Connection, reference: Any, wait: float, what: str) -> Any:
    """What an actor or a task answered; Ended, Late or RuntimeError where it did not. Raises EOFError once nobody waits for it."""
    until = time.monotonic() + wait
    while not ray.wait([reference], timeout=LOOK)[0]:
        if pipe.poll(0):  # nothing is sent while an answer is under way
            raise EOFError
        if time.monotonic() > until:
            return Late(f"waited {wait:g} s for {what}")
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as e:
        if getattr(e, "actor_init_failed", False):  # it would fail again
            return RuntimeError(f"a player could not be made on the Ray cluster: {e}")
        if isinstance(e, ray.exceptions.RayActorError):
            return Ended("its Ray actor died")
        if isinstance(e, tuple(getattr(ray.exceptions, name) for name in GONE)):
            return Ended(f"its Ray worker died: {type(e).__name__}")
        return RuntimeError(f"Ray could not bring an answer: {e}")
