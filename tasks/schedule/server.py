"""The Prefect server of a project: starts it, and lists its deployments and runs. Prefect is imported inside
functions only.

A server that we start listens on the loopback address, answers its own pages and those who know its password alone
(app.py), and keeps what it knows in .espalier/prefect, which is the user's alone, never in the user's own profile.
PREFECT_API_URL names another one, which is then used as it is (PREFECT_API_AUTH_STRING is its password, if it has one).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, UTC
from pathlib import Path
from typing import Any

from tasks.core.errors import UserError
from tasks.runtime import dvc, process
from tasks.schedule import app
from tasks.core import local
from tasks.storage import state

PORT = 4200
USER = "espalier"  # the user part of the password: Prefect requires user:token
POOL = "espalier"  # work pool of the deployments; its worker takes one run at a time
GPU = "gpu"  # global concurrency limit: one stage at a time on the device
PATIENCE = 300.0  # seconds for a server to answer after its start: some ten on an idle machine


def home(root: Path) -> Path:
    return root / ".espalier" / "prefect"


def password(root: Path) -> str:
    """user:token of the server of a project, kept in a file that its owner alone can read."""
    return f"{USER}:{local.secret(home(root) / 'token')}"


def link(root: Path, url: str) -> str:
    """The link to the server's pages; with the token if the server is the project's own."""
    address = url.removesuffix("/api")
    own = "PREFECT_API_URL" not in os.environ or os.environ.get("PREFECT_HOME") == str(home(root).resolve())
    return local.link(address, password(root).partition(":")[2]) if own else address


def environment(root: Path, url: str) -> dict[str, str]:
    """The environment variables that a client of the server needs; set them before Prefect is imported."""
    own = {}
    if not os.environ.get("PREFECT_API_URL"):
        own = {"PREFECT_HOME": str(home(root).resolve()), "PREFECT_API_AUTH_STRING": password(root)}
    return {"PREFECT_API_URL": url, "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1", **own}


def answers(url: str, seconds: float = 3.0) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=seconds) as reply:
            return reply.status == 200
    except (OSError, urllib.error.HTTPError):
        return False


def find(root: Path) -> str | None:
    """The address of the server in use; None where none runs. Raises UserError if PREFECT_API_URL names a server that
    does not answer."""
    if named := os.environ.get("PREFECT_API_URL"):
        if not answers(named):
            raise UserError(f"no Prefect server answers at PREFECT_API_URL={named}: start it, or unset the variable")
        return named
    about, alive = _noted(home(root) / "server.json")
    return about["url"] if alive and answers(about["url"], 10.0) else None


def connect(root: Path) -> str:
    """The address of the server in use, with this process set up to talk to it. Raises UserError if none runs, with
    what `espalier schedule` lacks first."""
    if find(root) is None:
        dvc.committed(root)
        raise UserError(f"no Prefect server runs for {root}: `espalier schedule` starts one")
    return settle(root)[0]


def settle(root: Path, port: int | None = None) -> tuple[str, bool]:
    """`address`, with this process set up to talk to the server: Prefect reads its settings once, when it is
    imported."""
    url, fresh = address(root, port)
    os.environ.update(environment(root, url))
    return url, fresh


def address(root: Path, port: int | None = None) -> tuple[str, bool]:
    """The address of the server in use, or the one where `running` will start it (`port`; default PORT, or a free one),
    and whether it is still to be started."""
    url = find(root)
    fresh = url is None
    if url is None:
        url = f"http://127.0.0.1:{_port(port)}/api"
    home(root).mkdir(parents=True, exist_ok=True)
    home(root).chmod(0o700)  # the token, and a database that says what a worker runs
    return url, fresh


@contextmanager
def running(root: Path, url: str) -> Iterator[None]:
    """A server at `url` that answers, ended with this."""
    with begun(root, url) as wait:
        wait()
        yield


@contextmanager
def begun(root: Path, url: str) -> Iterator[Callable[[], None]]:
    """A server at `url`, ended with this; the function waits until it answers, and raises UserError if it does not
    start."""
    at = url.removesuffix("/api")
    env = environment(root, url) | app.settings(password(root), at)
    with beside(root, "server", "tasks.schedule.app", at.rpartition(":")[2], env=env) as child:

        def wait() -> None:
            until = time.monotonic() + PATIENCE
            while not answers(url):
                if child.poll() is not None or time.monotonic() > until:
                    raise UserError(
                        f"the Prefect server did not start; {home(root) / 'server.log'} ends: {_last_line(root, 'server')}"
                    )
                time.sleep(0.3)
            _note(home(root) / "server.json", child.pid, url=url)

        yield wait


def _port(wanted: int | None) -> int:
    for port in (PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return s.getsockname()[1]
            except OSError:
                continue
    raise UserError(f"port {wanted} is in use: name another with --port")


@contextmanager
def beside(
    root: Path, name: str, module: str, *command: str, env: Mapping[str, str] = {}
) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m MODULE COMMAND` in a process group of its own, its output in .espalier/prefect/<name>.log; ended with
    all that it started. env: what it has in its environment beside ours."""
    with (home(root) / f"{name}.log").open("ab") as log:
        child = subprocess.Popen(
            process.ending_with_us(module, *command),
            cwd=root,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield child
        finally:
            process.end_group(child.pid, grace=40.0)  # a worker ends its run first, which ends its stage
            child.wait()


def _last_line(root: Path, name: str) -> str:
    lines = (home(root) / f"{name}.log").read_text(encoding="utf-8", errors="replace").split("\n")
    return next((" ".join(x.split()) for x in reversed(lines) if x.strip()), "nothing")


def client() -> Any:
    from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def prepare(api: Any) -> None:
    """Creates the limit on the device and the work pool if they are missing."""
    api.upsert_global_concurrency_limit_by_name(GPU, 1)
    pool(api, POOL)


def pool(api: Any, name: str) -> None:
    """Creates a work pool whose workers run processes, if it is missing."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    try:
        api.create_work_pool(WorkPoolCreate(name=name, type="process"))
    except ObjectAlreadyExists:
        pass


def worker(pool: str) -> list[str]:
    """The words behind `prefect` that start a worker of a pool, which takes one run at a time."""
    return ["worker", "start", "--pool", pool, "--type", "process", "--limit", "1", "--name", f"espalier-{pool}"]


def tidy(api: Any, root: Path) -> list[str]:
    """Make the states true before a worker starts: runs whose process is gone have crashed, and of the runs that nobody
    started in time only the last of each deployment is still to be run. Returns a line about each."""
    from prefect.states import Cancelled

    lines = bury(api, root)
    late: dict[Any, list[Any]] = {}
    for run in _runs(api, ("SCHEDULED",), 200):
        if run.deployment_id and run.expected_start_time and run.expected_start_time < datetime.now(UTC):
            late.setdefault(run.deployment_id, []).append(run)
    for runs in late.values():
        for run in sorted(runs, key=lambda r: r.expected_start_time)[:-1]:
            missed = Cancelled(message="missed while no worker ran; a later one of its deployment runs")
            api.set_flow_run_state(run.id, missed, force=True)
            lines.append(f"{run.name}: missed while no worker ran; a later one runs instead")
    return lines


def bury(api: Any, root: Path) -> list[str]:
    """Marks the runs whose process is gone as crashed, and the runs below them. Returns a line about each."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort
    from prefect.states import Crashed

    lines = []
    for run in _runs(api, ("RUNNING", "CANCELLING"), 200):
        about, alive = _noted(home(root) / "runs" / f"{run.id}.json")
        if about and not alive:
            below = FlowRunFilter.model_validate(
                {"parent_flow_run_id": {"any_": [run.id]}, "state": {"type": {"any_": ["RUNNING", "PENDING"]}}}
            )
            gone = Crashed(message="its process is gone; the next run goes on from where it was")
            left = api.read_flow_runs(flow_run_filter=below, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=200)
            for one in [*left, run]:
                api.set_flow_run_state(one.id, gone, force=True)
            lines.append(f"{run.name}: its process is gone, now marked as crashed")
    return lines


def note(root: Path, run: str) -> None:
    """Note that this process executes the flow run `run`: what `tidy` and `stop` go by."""
    _note(home(root) / "runs" / f"{run}.json", os.getpid())


def _note(path: Path, pid: int, **more: str) -> None:
    seen = process.look(pid)
    state.write(path, {"pid": pid, "started": seen.started if seen else "", **more})


def _noted(path: Path) -> tuple[dict[str, Any], bool]:
    """What was noted of a process, and whether it is still there."""
    about = state.read(path, else_="what process it told of is not known any more", needs=("pid", "started"))
    return ({}, False) if about is None else (about, process.alive(about["pid"], about["started"]))


def _runs(api: Any, types: tuple[str, ...] = (), limit: int = 10) -> list[Any]:
    """Flow runs of no other flow (stages are shown below them), the latest first."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    wanted: dict[str, Any] = {"parent_task_run_id": {"is_null_": True}}
    if types:
        wanted["state"] = {"type": {"any_": list(types)}}
    return api.read_flow_runs(
        flow_run_filter=FlowRunFilter(**wanted), sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=limit
    )


def recent(api: Any, limit: int) -> list[Any]:
    """The latest runs that have started or are overdue."""
    begun = _runs(
        api, ("RUNNING", "PENDING", "CANCELLING", "COMPLETED", "FAILED", "CRASHED", "CANCELLED", "PAUSED"), limit
    )
    due = [
        r for r in _runs(api, ("SCHEDULED",), 50) if r.expected_start_time and r.expected_start_time < datetime.now(UTC)
    ]
    return sorted(begun + due, key=lambda r: r.expected_start_time, reverse=True)[:limit]


def ahead(api: Any, deployment: Any) -> datetime | None:
    """When the next run of a deployment is due."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import FlowRunSort

    wanted = FlowRunFilter.model_validate(
        {"deployment_id": {"any_": [deployment.id]}, "state": {"type": {"any_": ["SCHEDULED"]}}}
    )
    runs = api.read_flow_runs(flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_ASC, limit=1)
    return runs[0].expected_start_time if runs else None


def stages(api: Any, run: Any) -> dict[str, str]:
    """Stage -> name of its state, in the order in which they began."""
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import TaskRunSort

    tasks = api.read_task_runs(
        flow_run_filter=FlowRunFilter.model_validate({"id": {"any_": [run.id]}}),
        sort=TaskRunSort.EXPECTED_START_TIME_ASC,
        limit=200,
    )
    return {t.name: t.state.name for t in tasks if t.state is not None}


def chosen(api: Any, name: str) -> Any:
    """The flow run with this name or id prefix. Raises UserError if there is none, or more than one."""
    matching = [
        r for r in _runs(api, (), 200) if name in (r.name, str(r.id)) or (len(name) >= 4 and str(r.id).startswith(name))
    ]
    if len(matching) != 1:
        why = "no run has" if not matching else f"{len(matching)} runs have"
        raise UserError(f"{why} the name or id {name!r}: `espalier status` lists them")
    return matching[0]


def stop(api: Any, root: Path, run: Any, seconds: float = 180.0) -> str:
    """Cancel a run and wait until it has ended: its worker, or we where it was started by `espalier run --watch`, ends
    its processes."""
    import httpx
    from prefect.states import Cancelled, Cancelling

    if run.state.is_final():
        return f"{run.name} has ended already: {run.state.name}"
    if run.state.is_scheduled():
        api.set_flow_run_state(run.id, Cancelled(message="by `espalier stop`"), force=True)
        return f"{run.name} is cancelled before it began"
    api.set_flow_run_state(run.id, Cancelling(message="by `espalier stop`"), force=True)
    path = home(root) / "runs" / f"{run.id}.json"
    about, alive = _noted(path)
    if alive and not run.deployment_id:
        os.kill(about["pid"], signal.SIGTERM)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if not _noted(path)[1]:
            # A server that a run or a sweep started for itself has ended with it, after it was told how.
            with suppress(httpx.TransportError):
                if not api.read_flow_run(run.id).state.is_cancelled():
                    api.set_flow_run_state(run.id, Cancelled(message="by `espalier stop`"), force=True)
            return f"{run.name} is cancelled; what was finished stays finished, and the next run goes on from there"
        time.sleep(0.5)
    raise UserError(
        f"{run.name} has not ended within {seconds:g} seconds (process {about.get('pid', 'unknown')}): is `espalier schedule` still running?"
    )
