"""`espalier schedule`, `deploy`, `status`, `stop`: the Prefect server, its schedules, and its past runs.
docs/schedules.md"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import nullcontext
from datetime import datetime, UTC
from typing import Any

from flows.cli._text import count

from tasks.core.errors import UserError
from tasks.core.paths import inside


def add(commands: Any) -> None:
    p = commands.add_parser(
        "schedule", help="start a Prefect server, the deployments of prefect.yaml and a worker, on this machine only"
    )
    p.add_argument("--port", type=int, help="default: 4200, or a free one")
    p.set_defaults(run=schedule)
    p = commands.add_parser("deploy", help="put the deployments of prefect.yaml on the server that runs")
    p.set_defaults(run=deploy)
    p = commands.add_parser("worker", help="take the stages of a work pool on this machine, until Ctrl-C")
    p.add_argument("pool", metavar="POOL", help="a pool that `pools` of a deployment of `pipeline` names")
    p.set_defaults(run=worker)
    p = commands.add_parser("status", help="what is scheduled, what runs, how the last runs ended")
    p.add_argument("--last", type=count, default=10, metavar="N", help="runs to show (default: 10)")
    p.set_defaults(run=status)
    p = commands.add_parser("stop", help="cancel a run with all its processes; what was finished stays finished")
    p.add_argument("flow_run", metavar="RUN", help="name or id of `espalier status`")
    p.set_defaults(run=stop)


def schedule(args: argparse.Namespace) -> int:
    """Runs until Ctrl-C or SIGTERM, which also cancel the current run."""
    from tasks.runtime import dvc
    from tasks.schedule import deployments, server

    root = inside()
    dvc.committed(root)
    own = "PREFECT_API_URL" not in os.environ
    url, fresh = server.settle(root, args.port)
    deployments.read(root)  # an invalid prefect.yaml is refused before anything starts
    if own and not fresh:
        raise UserError(f"{root} is served already at {url.removesuffix('/api')}: `espalier deploy` puts changes there")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print("starting a Prefect server ...", flush=True)
    with server.running(root, url) if fresh else nullcontext():
        with server.client() as api:
            lines = [*deployments.apply(api, root), *server.tidy(api, root)]
        print("\n".join(["", *lines, ""]), flush=True)
        with server.beside(root, "worker", "prefect", *server.worker(server.POOL)) as child:
            print(
                f"Prefect: {server.link(root, url)} (end with Ctrl-C)   `espalier status` says what runs and when",
                flush=True,
            )
            try:
                while child.poll() is None:
                    time.sleep(1.0)
            except KeyboardInterrupt:
                print("ending the worker, its run and the server ...", flush=True)
                return 0
    raise UserError(f"the worker ended by itself; {server.home(root) / 'worker.log'} says why")


def deploy(args: argparse.Namespace) -> int:
    from tasks.schedule import deployments, server

    root = inside()
    server.connect(root)
    with server.client() as api:
        print("\n".join(deployments.apply(api, root)))
    return 0


def worker(args: argparse.Namespace) -> int:
    """Runs until Ctrl-C or SIGTERM, which also end the current stage."""
    from tasks.core.errors import nearest
    from tasks.schedule import server

    root = inside()
    server.connect(root)
    with server.client() as api:
        known = [p.name for p in api.read_work_pools()]
    if args.pool not in known:
        raise UserError(
            f"there is no work pool {args.pool!r} on the server: {nearest(args.pool, known)}; `espalier deploy` makes those that prefect.yaml names"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with server.beside(root, f"worker-{args.pool}", "prefect", *server.worker(args.pool)) as child:
        print(f"waiting for stages of {args.pool} (end with Ctrl-C)", flush=True)
        try:
            while child.poll() is None:
                time.sleep(1.0)
        except KeyboardInterrupt:
            return 0
    raise UserError(f"the worker ended by itself; {server.home(root) / f'worker-{args.pool}.log'} says why")


def status(args: argparse.Namespace) -> int:
    from tasks.runtime import dvc
    from tasks.schedule import deployments, server

    root = inside()
    url = server.connect(root)  # where none runs it says what is wrong with git, once
    dvc.warn_of_index(root)
    with server.client() as api:
        print(f"Prefect: {server.link(root, url)}\n")
        rows = [["deployment", "schedule", "next run"]]
        for d in api.read_deployments(limit=50):
            due = server.ahead(api, d)
            words = (
                ", ".join(deployments.said_of(s.schedule) + ("" if s.active else " (off)") for s in d.schedules)
                or "none"
            )
            rows.append([d.name, words, "paused" if d.paused else _when(due)])
        _table(rows)
        print()
        rows = [["run", "id", "state", "began", "took", "stages"]]
        for run in server.recent(api, args.last):
            rows.append(
                [
                    run.name,
                    str(run.id)[:8],
                    run.state.name,
                    _when(run.start_time),
                    _took(run),
                    _stages(server.stages(api, run)),
                ]
            )
        _table(rows)
    return 0


def stop(args: argparse.Namespace) -> int:
    from tasks.schedule import server

    root = inside()
    server.connect(root)
    with server.client() as api:
        print(server.stop(api, root, server.chosen(api, args.flow_run)))
    return 0


def _when(at: datetime | None) -> str:
    return "" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M")


def _took(run: Any) -> str:
    if run.start_time is None:
        return ""
    seconds = int(((run.end_time or datetime.now(UTC)) - run.start_time).total_seconds())
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _stages(states: dict[str, str]) -> str:
    """For example "3 Completed, 10 Cached", followed by the names of all other stages."""
    counts = {s: sum(x == s for x in states.values()) for s in ("Completed", "Cached")}
    counted = [f"{n} {s}" for s, n in counts.items() if n]
    return ", ".join(counted + [f"{name} {s}" for name, s in states.items() if s not in counts])


def _table(rows: list[list[str]]) -> None:
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
