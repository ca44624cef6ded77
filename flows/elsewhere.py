"""One stage on the worker of a work pool, for `pipeline` with `pools`: the machine is the pool's, the project the same
folder on storage that they share."""

import time
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from tasks.core.errors import StageError
from tasks.core.paths import project
from tasks.runtime import dvc

ASKED = 2.0  # seconds between two looks at a run


@flow(name="elsewhere", flow_run_name="{name}")
def elsewhere(name: str, env: dict[str, str], limit: float | None = None) -> State:
    """Bring one stage up to date here; the message of the state says how, or what failed.

    Args:
        name: the stage
        env: variables of the environment that the run which asks has set for its stages
        limit: seconds after which the stage is ended
    """
    try:
        return Completed(message=dvc.stage(name, project(), env, get_run_logger().info, limit))
    except StageError as e:
        return Failed(name="Transient" if e.transient else "Failed", message=str(e))


def asked(api: Any, pool: str, root: Path, name: str, env: dict[str, str], limit: float | None, patience: float) -> str:
    """Have a stage run by a pool, and wait: what `dvc.stage` returns. A run that is left is cancelled. Raises StageError
    where it failed, and where no worker of the pool has taken it within `patience` seconds."""
    from prefect.deployments import run_deployment
    from prefect.states import Cancelled, Cancelling

    run: Any = run_deployment(
        f"elsewhere/{pool}", parameters={"name": name, "env": env, "limit": limit}, timeout=0, as_subflow=True
    )
    until = time.monotonic() + patience
    try:
        while not run.state.is_final():
            if run.state.is_scheduled() and time.monotonic() > until:
                raise StageError(
                    f"no worker of the pool {pool} took the stage {name} within {patience / 60:g} minutes: start one on such a "
                    f"machine, in {root}, with `espalier worker {pool}`",
                    transient=False,
                )
            time.sleep(ASKED)
            run = api.read_flow_run(run.id)
    finally:
        if not run.state.is_final():
            left = Cancelled if run.state.is_scheduled() else Cancelling
            api.set_flow_run_state(run.id, left(message="the run that asked for it has ended"), force=True)
    message = run.state.message or f"it ended as {run.state.name}"
    if run.state.is_completed():
        return message
    lost = run.state.is_crashed() or run.state.name == "Transient"
    raise StageError(message if name in message else f"the stage {name} failed: {message}", transient=lost)
