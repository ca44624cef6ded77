"""A sweep on a Prefect server: a run of the flow `sweep`, and below it a run of the flow `value` for each value.

The work is not run by Prefect's engine, which would fail with its server. A thread of its own tells the server what
happened, in order, and nobody waits for it: if the server is away, there is one warning, and the thread tries again
until the sweep ends. What could not be told by then is given up.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal
from uuid import UUID, uuid4

from tasks.core.errors import UserError
from tasks.schedule import server

AGAIN = 2.0  # seconds between two tries to reach a server that is away
SECONDS = 10.0  # for a server to answer one request
LAST = 10.0  # seconds for a server that is away, or busy, to answer: then it is said, and given up if the sweep is over
START = 60.0  # seconds, at the end of a sweep, for a server that is still starting

Kind = Literal["Completed", "Failed", "Crashed", "Cancelled"]  # how a run ended, as Prefect's states are called


def sweep() -> None:
    """Every value of a grid, several at a time (`espalier sweep`)."""


def value() -> None:
    """The whole graph for one value of a sweep, kept as a DVC experiment."""


def died(error: BaseException) -> tuple[Kind, str]:
    """How a run ends by an error, and what its state says."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        return "Cancelled", "it was ended; the same command goes on with what is left"
    return "Failed" if isinstance(error, UserError) else "Crashed", str(error) or type(error).__name__


class Runs:
    """What a server is told of a sweep. Every method returns at once, and none raises for what the server does."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        """name: of the sweep, a tag of all its runs; say: gets warnings."""
        self.name, self._say = name, say
        self._tell: queue.SimpleQueue[Callable[[Any], object] | None] = queue.SimpleQueue()
        self._ids: dict[str, UUID] = {}  # name of a value's experiment, "" of the sweep -> its run
        self._began: dict[str, float] = {}
        self._ended: dict[str, Kind] = {}
        self._over, self._warned = threading.Event(), False

    def open(self, root: Path, parameters: Mapping[str, Any]) -> None:
        """The sweep begins. Runs of sweeps whose process is gone are marked as crashed."""

        def tell(api: Any, name: str = f"sweep-{self.name}-{time.strftime('%m%d-%H%M%S')}", key: str = uuid4().hex):
            self._ids[""] = _created(api, sweep, name, parameters, ["sweep", self.name], key)
            server.note(root, str(self._ids[""]))

        self._tell.put(lambda api: server.bury(api, root))
        self._tell.put(tell)

    def begin(self, point: str, words: str, parameters: Mapping[str, Any]) -> None:
        """A value begins. point: the name of its experiment; words: the value as a person wrote it."""

        def tell(api: Any, key: str = uuid4().hex) -> None:
            from prefect import Task
            from prefect.states import Pending

            place: Any = Task(value, name="value")  # what Prefect shows a run below another one by
            above = api.create_task_run(place, self._ids[""], dynamic_key=point, name=words, state=Pending())
            self._ids[point] = _created(api, value, words, parameters, ["sweep", self.name, point], key, above.id)

        self._began[point] = time.monotonic()
        self._tell.put(tell)

    def again(self, point: str, why: str) -> None:
        """The worker of a value was ended, and is begun again."""
        self._state(point, "Retrying", why)

    def end(self, point: str, how: Kind, why: str) -> None:
        """A value ends."""
        self._ended[point] = how
        # Prefect takes the time at which it is told, which is later if the server was away or starting.
        self._state(point, how, f"{why} ({time.monotonic() - self._began[point]:.0f} s)")

    def close(self, error: BaseException | None) -> None:
        """The sweep ends, by this error or None."""
        if error is None:
            bad = sum(how != "Completed" for how in self._ended.values())
            why = f"{bad} of {len(self._ended)} values failed" if bad else f"{len(self._ended)} values ran"
            self._state("", "Failed" if bad else "Completed", why)
        else:
            self._state("", *died(error))

    def _state(self, point: str, name: str, message: str) -> None:
        def tell(api: Any) -> None:
            from prefect import states

            # Forced: a person may have changed it in Prefect's pages meanwhile, and this is what happened.
            api.set_flow_run_state(self._ids[point], getattr(states, name)(message=message), force=True)

        self._tell.put(tell)

    def finish(self) -> None:
        """Nothing more will be told: `work` returns once all is told, or LAST seconds after the server went away."""
        self._over.set()
        self._tell.put(None)

    def work(self, connect: Callable[[], AbstractContextManager[Any]]) -> None:
        """Tells the server until `finish`. connect: waits for the server and gives a client of it; may raise."""
        try:
            with connect() as api:
                while (told := self._tell.get()) is not None and self._told(api, told):
                    pass
        except Exception as e:
            self._warn(e)

    def _told(self, api: Any, told: Callable[[Any], object]) -> bool:
        """Tells one thing, however often it takes. False if the sweep is over and the server is away."""
        until = time.monotonic() + LAST
        while True:
            try:
                told(api)
            except Exception as e:
                away, late = _away(e), time.monotonic() > until
                if late or not away:
                    self._warn(e)
                if away and not (late and self._over.is_set()):
                    time.sleep(AGAIN)
                    continue
                return not away
            return True

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            why = (
                str(error)
                if isinstance(error, UserError)
                else f"{type(error).__name__}: {' '.join(str(error).split())}"
            )
            self._say(f"warning: Prefect does not show all of this sweep, which goes on ({why})")
        self._warned = True


def _away(error: Exception) -> bool:
    """Whether the server may answer later: it is not reached, or too busy."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= 500
    return isinstance(error, httpx.TransportError)


def _created(
    api: Any,
    flow: Callable[[], None],
    name: str,
    parameters: Mapping[str, Any],
    tags: list[str],
    key: str,
    above: UUID | None = None,
) -> UUID:
    """A flow run that has begun. `key` makes the request safe to repeat."""
    from prefect import Flow
    from prefect.client.schemas.actions import FlowRunCreate
    from prefect.states import Running, to_state_create

    request = FlowRunCreate(
        flow_id=api.create_flow(Flow(flow)),
        name=name,
        parameters=dict(parameters),
        tags=tags,
        parent_task_run_id=above,
        state=to_state_create(Running()),
        idempotency_key=key,
    )
    return UUID(api.request("POST", "/flow_runs/", json=request.model_dump(mode="json")).json()["id"])


@contextmanager
def shown(root: Path, name: str, parameters: Mapping[str, Any], say: Callable[[str], None]) -> Iterator[Runs]:
    """The runs of a sweep on the server in use, or on one that is started for as long as this lasts. The block is the
    sweep."""
    runs = Runs(name, say)
    try:
        url, fresh = server.address(root)
    except UserError as e:
        say(f"warning: the sweep goes on without Prefect: {e}")
        yield runs
        return
    beside = server.begun(root, url) if fresh else nullcontext(lambda: None)
    with beside as wait:
        connect = functools.partial(_connected, root, url, wait, say)
        thread = threading.Thread(target=runs.work, args=(connect,), name="prefect", daemon=True)
        thread.start()
        runs.open(root, parameters)
        try:
            yield runs
        except BaseException as e:
            runs.close(e)
            raise
        else:
            runs.close(None)
        finally:
            runs.finish()
            thread.join(START + LAST + SECONDS)


@contextmanager
def _connected(root: Path, url: str, wait: Callable[[], None], say: Callable[[str], None]) -> Iterator[Any]:
    """A client of the server, once it answers. It does not read Prefect's settings, which this process may have read
    for another server."""
    wait()
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    password = os.environ.get("PREFECT_API_AUTH_STRING") if "PREFECT_API_URL" in os.environ else server.password(root)
    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}),  # `_told` tries again itself
        SyncPrefectClient(url, auth_string=password, httpx_settings={"timeout": SECONDS}) as api,
    ):
        say(f"Prefect shows it at {server.link(root, url)}")
        yield api
