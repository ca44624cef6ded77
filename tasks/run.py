"""Runs one stage in the process that DVC started: failures become one sentence and an exit code.

tasks/runtime/prefect_shim.py decides whether Prefect watches it.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.runtime.stage import Stage


def run_stage(name: str) -> None:
    """Run the stage `name` of the project in the working directory with the parameters that the plan wrote for it.

    A user's mistake ends the process with `error: ...` and code 2; a connection that failed or was too slow, with code
    75 (`pipeline` tries the stage again); a bug, with its traceback and code 1; SIGTERM, with code 143.
    """
    from tasks.core import text

    if (code := _elsewhere(name)) is not None:
        sys.exit(code)
    with text.terminal():
        _guarded(name)


def _elsewhere(name: str) -> int | None:
    """The exit code of a process that had loaded torch already and ran the stage in the place of this one; None where
    there is none that could (tasks/runtime/warm.py)."""
    from tasks.runtime import ranks, warm

    plan = Path("artifacts/plan") / f"{name}.json"
    if not os.environ.get(warm.SOCKET) or ranks.started() or not plan.exists():
        return None
    with suppress(ValueError):  # what is wrong with the file, the stage says
        planned = json.loads(plan.read_text(encoding="utf-8"))
        params = planned.get("params", {})
        if str(params.get("device", "cpu")) == "cpu" and "vllm" not in json.dumps(params.get("engine", "")):
            return warm.asked(f"flows.{name}", int(planned.get("threads", 2)))
    return None


def _guarded(name: str) -> None:
    from tasks.core import errors
    from tasks.runtime import ranks
    from tasks.runtime import termination as ending

    ending.on_sigterm(name)
    try:
        with ending.disk_errors():
            _run(name)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the next run goes on from here where the stage can resume", file=sys.stderr)
        sys.exit(130)
    except Exception as e:
        message = errors.sentence(name, e)
        if type(e).__name__ == "Lost" and ranks.MEET in os.environ:
            sys.exit(ranks.LOST)  # whose fault it was, the process knows that started all
        if not message:
            raise
        if os.environ.get("ESPALIER_TRACEBACK"):
            traceback.print_exception(e)
        print(f"error: {message}", file=sys.stderr, flush=True)
        passing = isinstance(e, ConnectionError | TimeoutError) and not isinstance(e, errors.UserError)
        sys.exit(errors.TRANSIENT if passing else 2)


def _run(name: str) -> None:
    from tasks.core import paths
    from tasks.core.errors import UserError
    from tasks.planning import pieces, places
    from tasks.runtime import process, ranks, threads
    from tasks.runtime.stage import Stage, load, place
    from tasks.tracking import spool

    process.end_with_starters()
    paths.allow_remote_code()
    stage = Stage(name, plan=load(name), place=place(name))
    if stage.place.get("learners", 1) > 1 and not ranks.started():
        key = spool.execution()
        spool.open_execution(stage.root, key)  # of those who started us, not of this process
        sys.exit(ranks.launch(name, stage.place["learners"], {**os.environ, spool.EXECUTION: key}))
    if (size := ranks.here().size) > 1:
        if name not in places.ROWS:
            raise UserError(f"{name}: this stage runs in one process: start it without torchrun")
        stage.place["learners"] = size
    threads.set_threads(stage.threads)
    with ranks.once(name, stage.root), _kept(stage):
        if size > 1:
            places.check_learners(name, size, stage.params, "the number of processes")
        pieces.open_own()
        stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
        function = getattr(importlib.import_module(f"tasks.stages.{name}"), name)
        function(stage, **stage.params, **stage.place)


@contextmanager
def _kept(stage: Stage) -> Iterator[None]:
    """Lock, record and outputs of a stage, which are its first process's: the others write nothing."""
    from tasks.runtime import ranks
    from tasks.storage import faults
    from tasks.tracking import spool

    if rank := ranks.here().rank:
        faults.stage = f"{stage.name}_{rank}"
        yield
        return
    with spool.recording(stage), stage.running():
        yield
