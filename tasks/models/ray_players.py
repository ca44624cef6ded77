"""Players on the machines of a Ray cluster (`rl.ray`): each is an actor, which holds a player's process on its machine.

The contract is that of players on this machine (training/rollout/players.py), whose code runs inside the actor: the
environment is in a process of its own there, so what ends it, and how long it took, is said in the same words. Where the
actor itself ends, with its machine or alone, another is started wherever Ray has room, and its episodes are played again.

The process beside the stage that speaks with Ray is that of `tasks/runtime/cluster.py`; where the stage ends, Ray ends the actors,
and these their processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.runtime.cluster import MARGIN, Cluster, Project, enter, given, got
from training.rollout.players import CONTEXT, GRACE, START, Built, Ended, Late, Place, Players, send


def cluster_of(
    address: str, n: int, where: str, folder: Path, plan: Path | None, log: Path = Path(os.devnull)
) -> Cluster:
    """The cluster of `n` players; arguments as of `Cluster`."""
    return Cluster(address, n, where, folder, plan, _seat, log=log)


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
        reply = super().heard(wait + 2 * MARGIN, what)
        if isinstance(reply, Ended):
            self.why = str(reply)
        return reply

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
                if (reply := place.begun()) is not None and not isinstance(reply, Ended):
                    raise reply
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

    def __init__(self, build: Callable[[], Built], name: str, project: Project) -> None:
        self.place, self.project = Place(build, name), project

    def begun(self) -> BaseException | None:
        try:
            enter(*self.project)
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


def _seat(ray: Any, pipe: Connection, address: str, project: Project) -> None:
    """An actor, and what goes to and fro between it and a pipe, until that is closed."""
    options = {
        "max_restarts": 0,
        "max_task_retries": 0,
        "scheduling_strategy": "SPREAD",
        "runtime_env": given(),
    }
    actor = None
    try:
        build, name, cpus = pipe.recv()
        actor = ray.remote(Seat).options(num_cpus=cpus, **options).remote(build, name, project)
        what = f"a free CPU of the Ray cluster at {address}, and for it to have its environments and tools there"
        reply = got(ray, pipe, actor.begun.remote(), START + MARGIN, what)
        send(pipe, "ready" if reply is None else reply)
        while reply is None:
            request, wait = pipe.recv()
            what = f"an answer of the environment {request[2]}"
            send(pipe, got(ray, pipe, actor.answer.remote(request, wait), wait + MARGIN, what))
    except (EOFError, OSError):
        pass  # nobody asks any more
    finally:
        pipe.close()
        if actor is not None:
            with contextlib.suppress(Exception):
                ray.get(actor.end.remote(), timeout=GRACE + 1)
            ray.kill(actor)
