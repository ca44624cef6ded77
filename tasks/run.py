"""Running one stage in the process that DVC started: what goes wrong becomes one sentence and an exit code.

With or without Prefect above it is decided in tasks/runtime/prefect_shim.py.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback


def run_stage(name: str) -> None:
    """Run the stage `name` of the project in the working directory with the parameters that the plan wrote for it.

    A mistake of the user's ends the process with `error: ...` and code 2, a connection that failed or was too slow with
    code 75 (`pipeline` tries such a stage again), an error of ours with its traceback and code 1. Ended by SIGTERM:
    code 143.
    """
    from tasks import text

    with text.terminal():
        _guarded(name)


def _guarded(name: str) -> None:
    from tasks import errors
    from tasks.runtime import termination as ending

    ending.on_sigterm(name)
    try:
        with ending.disk_errors():
            _run(name)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the next run goes on from here where the stage can resume", file=sys.stderr)
        sys.exit(130)
    except Exception as e:
        said = errors.sentence(name, e)
        if not said:
            raise
        if os.environ.get("ESPALIER_TRACEBACK"):
            traceback.print_exception(e)
        print(f"error: {said}", file=sys.stderr, flush=True)
        passing = isinstance(e, ConnectionError | TimeoutError) and not isinstance(e, errors.UserError)
        sys.exit(errors.TRANSIENT if passing else 2)


def _run(name: str) -> None:
    from tasks.planning import pieces
    from tasks.runtime import process
    from tasks.runtime.stage import Stage, load
    from tasks.tracking import spool

    process.end_with_starters()
    stage = Stage(name, plan=load(name))
    os.environ.setdefault(
        "OMP_NUM_THREADS", str(stage.threads)
    )  # before torch is imported; results are bitwise the same per thread count
    with spool.recording(stage), stage.running():
        pieces.open_own()
        stage.params = pieces.bind_all(stage.pieces, stage.params, stage.settings)
        function = getattr(importlib.import_module(f"tasks.stages.{name}"), name)
        function(stage, **stage.params)
