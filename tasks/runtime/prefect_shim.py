"""`flow` and `task` of stages. They return the functions unchanged, unless the environment says that the flow
`pipeline` is the parent; then they are Prefect's, so that steps can be watched. If the server is lost, a warning is
printed and the stage continues."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import Any

PARENT = "ESPALIER_PREFECT"  # set to 1 by flows/pipeline.py for the stages it starts


ABOVE = "ESPALIER_TASK_RUN"  # the task run of `pipeline` below which a stage's flow run is shown


_lost: list[str] = []  # why this process stopped using Prefect: a dead server costs its time-out only once


def flow(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorates the flow of a stage, as `@flow` or `@flow(name=...)`."""
    return _watched("flow", function, options)


def task(function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[..., Any]:
    """Decorate a step worth watching. Arguments are handles, never tensors; results are not cached by Prefect: DVC owns
    identity."""
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
            watched_function = getattr(prefect, kind)(body, **{"name": function.__name__, **more, **options})
            _below(watched_function, os.environ[ABOVE]) if kind == "flow" and os.environ.get(
                ABOVE
            ) else watched_function()
        except Exception as e:
            if "error" in ended:
                raise ended["error"] from None
            _lost.append(str(e))
            warnings.warn(
                f"Prefect could not watch {function.__name__} ({type(e).__name__}: {e}); the work goes on without it",
                stacklevel=2,
            )
        return ended["value"] if "begun" in ended else function(*args, **kwargs)

    return watched


def _below(flow: Any, above: str) -> None:
    """Runs a Prefect flow as the child of a task run of another process."""
    from uuid import UUID

    from prefect.client.orchestration import get_client
    from prefect.flow_engine import run_flow
    from prefect.states import Pending

    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(flow, parent_task_run_id=UUID(above), state=Pending())
    run_flow(flow, flow_run=flow_run)
