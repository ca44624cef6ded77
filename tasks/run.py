"""Running one stage, with or without Prefect above it.

`flow` and `task` are identity decorators, and Prefect is not imported, unless the environment variable
ESPALIER_PREFECT says that the flow `pipeline` is the parent; a Prefect profile alone never counts. Under that parent
they are Prefect's, so that steps can be watched. Prefect only watches: where its server is lost, before or under way,
the work goes on plain with one warning, and its own errors are the only ones that are raised.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

PARENT = "ESPALIER_PREFECT"  # set to 1 by flows/pipeline.py for the stages it starts
ABOVE = "ESPALIER_TASK_RUN"  # the task run of `pipeline` below which a stage's flow run is shown
_lost: list[str] = []  # why Prefect was given up in this process: it is asked no more, so a dead server costs its time-out once


def flow(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorate the flow of a stage, as `@flow` or `@flow(name=...)`."""
    return _watched("flow", function, options)


def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorate a step worth watching. Arguments are handles, never tensors; results are not cached by Prefect: DVC owns identity."""
    return _watched("task", function, options)


def _watched(kind: str, function: Callable[..., Any] | None, options: dict[str, Any]) -> Callable[..., Any]:
    if function is None:
        return functools.partial(_watched, kind, options=options)
    if os.environ.get(PARENT) != "1":
        return function

    @functools.wraps(function)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if _lost:
            return function(*args, **kwargs)
        import prefect
        from prefect.cache_policies import NO_CACHE

        ended: dict[str, Any] = {}

        @functools.wraps(function)
        def body() -> None:
            ended["begun"] = True
            try:
                ended["value"] = function(*args, **kwargs)
            except BaseException as e:
                ended["error"] = e
                raise

        del body.__wrapped__  # Prefect would read the arguments of `function` from it
        more = {"cache_policy": NO_CACHE} if kind == "task" else {}
        try:
            made = getattr(prefect, kind)(body, **{"name": function.__name__, **more, **options})
            _below(made, os.environ[ABOVE]) if kind == "flow" and os.environ.get(ABOVE) else made()
        except Exception as e:
            if "error" in ended:
                raise ended["error"] from None
            _lost.append(str(e))
            warnings.warn(
                f"Prefect could not watch {function.__name__} ({type(e).__name__}: {e}); the work goes on without it", stacklevel=2
            )
        return ended["value"] if "begun" in ended else function(*args, **kwargs)

    return watched


def _below(flow: Any, above: str) -> None:
    """Run a Prefect flow as the child of a task run of another process."""
    from uuid import UUID

    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        made = client.create_flow_run(flow, parent_task_run_id=UUID(above), state=Pending())
    run_flow(flow, flow_run=made)


def run_stage(name: str) -> None:
    """Run the stage `name` of the project in the working directory with the parameters that the plan wrote for it.

    A mistake of the user's ends the process with `error: ...` and code 2, a connection that failed or was too slow with code 75
    (`pipeline` tries such a stage again), an error of ours with its traceback and code 1. Ended by SIGTERM: code 143.
    """
    from tasks import ending, errors

    ending.on_sigterm(name)
    try:
        with ending.disk_errors():
            _run(name)
    except (errors.UserError, FileNotFoundError, PermissionError) as e:
        sys.exit(_say(name, e))
    except (ConnectionError, TimeoutError) as e:
        sys.exit(_say(name, e, errors.TRANSIENT))
    except (ValueError, LookupError, FloatingPointError) as e:  # the last: training has diverged
        if type(e) not in (ValueError, LookupError, FloatingPointError):  # a KeyError or a decoding error is no sentence of ours
            raise
        sys.exit(_say(name, e))
    except KeyboardInterrupt:
        print(f"{name}: interrupted; the next run goes on from here where the stage can resume", file=sys.stderr)
        sys.exit(130)


def _say(name: str, error: BaseException, code: int = 2) -> int:
    if os.environ.get("ESPALIER_TRACEBACK"):
        traceback.print_exception(error)
    where = "" if str(error).startswith((f"{name}:", f"{name}.")) else f"{name}: "  # a sentence about a knob names the stage itself
    print(f"error: {where}{error}", file=sys.stderr, flush=True)
    return code


def _run(name: str) -> None:
    from tasks import process
    from tasks.planning import pieces
    from tasks.stage import Stage, load
    from tasks.tracking import spool

    process.end_with_starters()
    stage = Stage(name, plan=load(name))
    os.environ.setdefault("OMP_NUM_THREADS", str(stage.threads))  # before torch is imported; results are bitwise the same per thread count
    with spool.recording(stage), stage.running():
        pieces.open_own()
        stage.params = pieces.bind_all(stage.pieces, stage.params)
        function = getattr(importlib.import_module(f"tasks.stages.{name}"), name)
        function(stage, **stage.params)
