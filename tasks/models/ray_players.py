"""Players on the machines of a Ray cluster (`rl.ray`): each is an actor, which holds a player's process on its machine.

The contract is that of players on this machine (training/rollout/players.py), whose code runs inside the actor: the
environment is in a process of its own there, so what ends it, and how long it took, is said in the same words. Where the
actor itself ends, with its machine or alone, another is started wherever Ray has room, and its episodes are played again.

One process beside the stage speaks with Ray, since a client of Ray takes the signal SIGTERM for itself, and ends with its
cluster: the stage must do neither. It has a pipe to the stage for each player, and ends with the stage; Ray then ends the
actors, and these their processes. Ray never repeats anything by itself (no restarts, no retries).
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
from functools import partial
from importlib.util import find_spec
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.planning import pieces
from training.rollout.players import (
    CONTEXT,
    GRACE,
    START,
    Built,
    Ended,
    Late,
    Place,
    Players,
    end_with_starter,
    send,
)

ANSWER = 5.0  # seconds until somebody answers at an address
CONNECT = 120.0  # seconds until the cluster has this process as its client
MARGIN = 30.0  # seconds by which a wait here is longer than the same wait on the player's machine
LOOK = 0.5  # seconds between looks at whether a request is still wanted
PASSED = ("ESPALIER_PATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED")  # variables that players have too


def check(address: str, where: str) -> None:
    """Raises UserError, which names the knob `where`, if Ray is not installed or nobody answers at the address."""
    if find_spec("ray") is None:
        raise UserError(
            f"{where} is {address}, and Ray is not installed: `pip install -c constraints.txt -e '.[ray]'`, or leave "
            f"{where} out for players on this machine"
        )
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except OSError as e:
        raise UserError(
            f"{where}: nobody answers at {address} within {ANSWER:g} s ({e.strerror or e}): start the cluster with `ray start "
            f"--head`, which prints its address, or leave {where} out for players on this machine"
        ) from None


@dataclass(eq=False)
class Cluster:
    """The process that speaks with the Ray cluster of an address. Thread-safe.

    n        players that the cluster needs room for
    where    the knob that named it, for messages
    folder   of the project, at the same path on every machine
    plan     a file of it that must be the same on every machine
    log      file for what Ray says
    """

    address: str
    n: int
    where: str
    folder: Path
    plan: Path
    log: Path = Path(os.devnull)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    process: Any = field(default=None, init=False, repr=False)
    _control: Any = field(default=None, init=False, repr=False)

    def connect(self) -> None:
        """Raises UserError if the cluster refuses, and TimeoutError if it takes too long."""
        check(self.address, self.where)
        self._control, theirs = CONTEXT.Pipe()
        project = (str(self.folder), str(self.plan), _digest(self.folder / self.plan))
        self.process = CONTEXT.Process(
            target=_drive,
            args=(theirs, self.address, self.n, self.where, project, self.log),
            name="players on Ray",
            daemon=True,
        )
        self.process.start()
        theirs.close()
        try:
            said = (
                self._control.recv()
                if self._control.poll(CONNECT)
                else TimeoutError(
                    f"{self.where}: waited {CONNECT:g} s for the Ray cluster at {self.address} to take this run in"
                )
            )
        except (EOFError, OSError):
            said = ConnectionError(
                f"{self.where}: the process that speaks with Ray ended before it was connected (see {self.log})"
            )
        if isinstance(said, BaseException):
            self.end()
            raise said

    def give(self, pipe: Connection) -> None:
        """Have a player played at the other end of this pipe; connects anew where the process has ended. Raises
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
        """End the process and all actors; a second call does nothing."""
        process, self.process = self.process, None
        if process is None:
            return
        self._control.close()
        process.join(2 * GRACE + MARGIN)
        process.kill()
        process.join()


@dataclass(eq=False)
class Remote(Place):
    """The place of a player on a machine of the cluster; its `process` is the one that speaks with Ray."""

    cluster: Cluster = field(kw_only=True)
    why: str = ""  # the actor ended

    def opened(self) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        with theirs:
            self.cluster.give(theirs)
        self.process, self.why = self.cluster.process, "the process that speaks with Ray ended"
        # One that takes the place of a lost one asks for no CPU of its own: its machine may have been lost with it.
        self.pipe.send((self.build, self.name, 0 if self.number else 1))

    def ask(self, request: tuple[Any, ...], wait: float) -> Any:
        try:
            return super().ask(request, wait)
        except (Ended, Late):
            self.end()
            raise

    def answer(self, request: tuple[Any, ...], wait: float) -> Any:
        self.pipe.send((request, wait))
        return self.heard(wait, f"an answer of the environment {request[2]}")

    def heard(self, wait: float, what: str) -> Any:
        said = super().heard(wait + 2 * MARGIN, what)
        if isinstance(said, Ended):
            self.why = str(said)
        return said

    def end(self, grace: float = 0.0) -> str:
        """Have the actor ended."""
        if self.process is not None:
            self.pipe.close()
            self.process = None
        return self.why


@dataclass(eq=False)
class OnRay(Players):
    """Players on a cluster, which is connected already."""

    cluster: Cluster = field(kw_only=True)

    def __post_init__(self) -> None:
        self.place = partial(Remote, cluster=self.cluster)
        super().__post_init__()

    def __enter__(self) -> OnRay:
        """Raises what keeps players from being made there, before anything is played."""
        super().__enter__()
        try:
            for place in self._places:
                if (said := place.begun()) is not None and not isinstance(said, Ended):
                    raise said
        except Late as e:
            self.__exit__()
            raise TimeoutError(f"{self.cluster.where}: {e}") from None
        except (EOFError, ConnectionError):
            pass  # the first turn starts another
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        self.cluster.end()


class Seat:
    """The actor: the process of one player, on this machine. What is raised is returned, as from that process."""

    def __init__(self, build: Callable[[], Built], name: str, project: tuple[str, str, str]) -> None:
        self.place, self.project = Place(build, name), project

    def begun(self) -> BaseException | None:
        try:
            _enter(*self.project)
            self.place.start()
            return self.place.begun()
        except (EOFError, OSError):
            return Ended(self.place.end(GRACE))
        except (Late, UserError) as e:
            return e

    def answer(self, request: tuple[Any, ...], wait: float) -> Any:
        gone, *rest = request
        self.place.gone.extend(gone)
        try:
            return self.place.ask(tuple(rest), wait)
        except BaseException as e:
            return e

    def end(self) -> None:
        self.place.end(GRACE)


def _enter(folder: str, plan: str, digest: str) -> None:
    """Work in the project's folder. Raises UserError if this machine has it not, or in another state."""
    here = f"the machine {socket.gethostname()} of the Ray cluster"
    if not Path(folder).is_dir():
        raise UserError(
            f"{here} has no folder {folder}: players read the project at the same path on every machine: share its file system"
        )
    if _digest(Path(folder) / plan) != digest:
        raise UserError(f"{here} has another {plan} in {folder} than this one: share the project's file system")
    os.chdir(folder)
    pieces.open_own()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _drive(control: Connection, address: str, n: int, where: str, project: tuple[str, str, str], log: Path) -> None:
    """The process that speaks with Ray: an actor for each pipe that it is given, until `control` is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the stage's to answer
    threading.Thread(target=end_with_starter, daemon=True).start()
    pieces.open_own()  # what players raise may be defined there
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as said:
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
    try:
        ray = _connected(address, n, where)
    except UserError as e:
        control.send(e)
        return
    control.send("connected")
    seats: list[threading.Thread] = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe = Connection(reduction.recv_handle(control))
            seats.append(threading.Thread(target=_seat, args=(ray, pipe, address, project), daemon=True))
            seats[-1].start()
    until = time.monotonic() + 2 * GRACE
    for seat in seats:
        seat.join(max(0.0, until - time.monotonic()))
    ray.shutdown()


def _connected(address: str, n: int, where: str) -> Any:
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
            f"{where}: the Ray cluster at {address} has {cpus:g} CPUs, and {n} players take one each: start more machines of it "
            "with `ray start --address=...`, or lower players"
        )
    return ray


def _seat(ray: Any, pipe: Connection, address: str, project: tuple[str, str, str]) -> None:
    """An actor, and what goes to and fro between it and a pipe, until that is closed."""
    given = {k: os.environ[k] for k in PASSED if k in os.environ}
    given["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    options = {
        "max_restarts": 0,
        "max_task_retries": 0,
        "scheduling_strategy": "SPREAD",
        "runtime_env": {"env_vars": given},
    }
    actor = None
    try:
        build, name, cpus = pipe.recv()
        actor = ray.remote(Seat).options(num_cpus=cpus, **options).remote(build, name, project)
        what = f"a free CPU of the Ray cluster at {address}, and for it to have its environments and tools there"
        said = _got(ray, pipe, actor.begun.remote(), START + MARGIN, what)
        send(pipe, "ready" if said is None else said)
        while said is None:
            request, wait = pipe.recv()
            what = f"an answer of the environment {request[2]}"
            send(pipe, _got(ray, pipe, actor.answer.remote(request, wait), wait + MARGIN, what))
    except (EOFError, OSError):
        pass  # nobody asks any more
    finally:
        pipe.close()
        if actor is not None:
            with contextlib.suppress(Exception):
                ray.get(actor.end.remote(), timeout=GRACE + 1)
            ray.kill(actor)


def _got(ray: Any, pipe: Connection, reference: Any, wait: float, what: str) -> Any:
    """What an actor answered. Raises EOFError once nobody waits for it."""
    until = time.monotonic() + wait
    while not ray.wait([reference], timeout=LOOK)[0]:
        if pipe.poll(0):  # nothing is sent while an answer is under way
            raise EOFError
        if time.monotonic() > until:
            return Late(f"waited {wait:g} s for {what}")
    try:
        return ray.get(reference)
    except ray.exceptions.RayActorError as e:
        if getattr(e, "actor_init_failed", False):  # it would fail again
            return RuntimeError(f"a player could not be made on the Ray cluster: {e}")
        return Ended("its Ray actor died")
    except ray.exceptions.RayError as e:
        return RuntimeError(f"Ray could not bring the answer of a player: {e}")
