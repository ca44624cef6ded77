"""The whole graph under Prefect: one task per stage of dvc.yaml.

A task runs `dvc repro -s STAGE` in a process group of its own and ends as `Cached` where nothing changed. The run ends
as a DVC experiment and with promotion. What is tried again after `retry_seconds`: a stage that found DVC's lock held, one
that ended with the code of a transient failure (75), and one that SIGKILL ended if it has a checkpoint or finished rows;
nothing else, as what a user has cancelled. One run per checkout (.espalier/lock; a
second one waits, shown as Queued) and one stage per GPU (the Prefect limit `gpu`). With `pools` a stage runs where a
worker of its work pool is (flows/elsewhere.py).
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run, task_run
from prefect.client.schemas.objects import State
from prefect.states import Completed, Running
from pydantic import Field

from flows.elsewhere import asked
from flows.overrides import blamed, merged, overrides_of
from tasks.core.errors import StageError, UserError, nearest
from tasks.core.paths import project
from tasks.planning import plan
from tasks.results import garbage
from tasks.runtime import dvc, prefect_shim, process
from tasks.runtime.stage import graph, load
from tasks.schedule import server
from tasks.tracking import spool

SAME = (
    "nothing that it reads has changed",
    "what it reads was made anew and is the same",
)  # why a stage is Cached, nothing having moved


def this_run() -> str:
    """The id of the flow run that this is."""
    return str(flow_run.get_id())


def named() -> str:
    """The name of a run: when it began, and what tells it from another of that minute."""
    return f"{time.strftime('%Y-%m-%d-%H%M')}-{this_run()[:6]}"


@flow(name="pipeline", flow_run_name=named)
def pipeline(
    recipe: str | None = None,
    settings: tuple[str, ...] = (),
    promote: bool = True,
    stage_minutes: Annotated[float, Field(gt=0)] | None = None,
    retry_seconds: tuple[Annotated[float, Field(ge=0)], ...] = (30.0, 120.0),
    pools: dict[str, str] | None = None,
    pool_minutes: Annotated[float, Field(gt=0)] = 60.0,
) -> State:
    """Reproduce what has changed, keep it as an experiment, promote the model.

    Args:
        recipe: the method, for this run only, as `espalier run --recipe NAME`; params.yaml is put back afterwards
        settings: values for this run only, STAGE.KNOB=VALUE each, e.g. rl.steps=50
        promote: compare the model with the champion at the end, where anything ran
        stage_minutes: a stage that takes longer is ended with all its processes
        retry_seconds: waits before a stage is tried again after a transient failure or SIGKILL; their number is the number of
            retries
        pools: work pools whose workers run stages: {gpu: gpu-1, cpu: cpu} by where a stage's models are (its
            `device`), or by its name; what is not named runs here
        pool_minutes: how long a stage waits for a worker of its pool
    """
    root = project()
    if odd := sorted((pools or {}).keys() - {"cpu", "gpu", *graph(root)}):
        raise UserError(f"pipeline: pools names {odd[0]!r}: {nearest(odd[0], ['cpu', 'gpu', *graph(root)])}")
    changes = overrides_of(root / "params.yaml", recipe, list(settings))
    with blamed(changes):  # refuses with one sentence before anything starts
        plan.plans(root, changed=lambda params: merged(params, changes))
    dvc.committed(root)
    server.note(root, this_run())
    with dvc.alone(root, queue=queued), dvc.overridden(changes, root):
        key = f"pipeline-{this_run()}"
        spool.open_execution(root, key, process.look(os.getpid()))
        limit = None if stage_minutes is None else 60 * stage_minutes
        env = {spool.EXECUTION: key}
        with spool.shipped(root, key, env, get_run_logger().info):
            ran = _walk(root, env, limit, retry_seconds, pools or {}, 60 * pool_minutes)
        if not ran:
            return Completed(name="Cached", message="nothing has changed")
        summary = f"ran {', '.join(ran)}"
        dvc.save(f"run-{flow_run.get_name()}", summary, root)
        if promote and spool.tracking(root):
            promotion(root)
        return Completed(message=summary)


def watch(**parameters: Any) -> tuple[int, str]:
    """Run the flow in this process; the exit code that this gives, and what is to be said."""
    try:
        state = pipeline(**parameters, return_state=True)
    except (TerminationSignal, KeyboardInterrupt):
        return 143, "it was cancelled"
    return (0 if state.is_completed() else 1), state.message or state.name or ""


def queued() -> None:
    from prefect.client.orchestration import get_client

    get_run_logger().info("another run is under way in this checkout; this one waits for it")
    with get_client(sync_client=True) as api:
        api.set_flow_run_state(
            this_run(), Running(name="Queued", message="another run is under way in this checkout"), force=True
        )


def _walk(
    root: Path,
    env: dict[str, str],
    limit: float | None,
    waits: Sequence[float],
    pools: Mapping[str, str],
    patience: float,
) -> list[str]:
    """Bring every stage up to date, each after those that it reads; the names of those that ran. Raises StageError."""
    bring = stage.with_options(retries=len(waits), retry_delay_seconds=list(waits) or 0)
    done = bring.with_options(task_run_name="plan")(root, "plan", True, env, limit)
    ran = [] if done.message in SAME else ["plan"]
    moved = set(
        dvc.changed_data(root)
    )  # asked once: a dvc process per stage that has not changed would take a second each
    for name, above in dvc.order(root).items():
        if name != "plan":
            due = name in moved or bool(above & set(ran) - {"plan"})
            done = bring.with_options(task_run_name=name)(root, name, due, env, limit, pools, patience)
            if done.message not in SAME:
                ran.append(name)
    return ran


def transient(_: Any, __: Any, state: State) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageError) and error.transient


@task(cache_policy=NO_CACHE, retry_condition_fn=transient)
def stage(
    root: Path,
    name: str,
    due: bool,
    env: dict[str, str],
    limit: float | None,
    pools: Mapping[str, str] = {},
    patience: float = 0.0,
) -> State:
    """One stage: what it says goes to the run's log, or to that of the run below it where another pool's worker runs it."""
    log = get_run_logger()
    if not due:
        return Completed(name="Cached", message=SAME[0])
    below = {
        prefect_shim.PARENT: "1",
        prefect_shim.ABOVE: str(task_run.get_id()),
        "PREFECT__FLOW_RUN_ID": str(flow_run.get_id()),
    }
    if name == "plan":  # over before Prefect would be imported
        below = {}
    before = garbage.outputs(root)
    device = str(load(name, root).get("params", {}).get("device", "")) if name in graph(root) and name != "plan" else ""
    pool = pools.get(name, pools.get("gpu" if device.startswith("cuda") else "cpu", ""))

    def bring() -> str:
        if pool and name != "plan":
            with server.client() as api:
                return asked(api, pool, root, name, env | below, limit, patience)
        if not device.startswith("cuda"):
            return dvc.stage(name, root, env | below, log.info, limit)
        from prefect.concurrency.sync import concurrency

        with concurrency(server.GPU, strict=True):
            return dvc.stage(name, root, env | below, log.info, limit)

    how = bring()
    if how != "ran" and (bad := garbage.restored(root, before)):
        log.warning("%s: removed, and made anew now", "; ".join(bad))
        how = bring()
    if how == "ran":
        return Completed()
    return Completed(name="Cached", message="taken from DVC's cache of runs" if how == "restored" else SAME[1])


@task(cache_policy=NO_CACHE)
def promotion(root: Path) -> State:
    """Registry and champion. A tracking server that is away is no reason for a night's work to count as failed."""
    from prefect.artifacts import create_markdown_artifact

    from tasks.results.promote import promote

    try:
        outcome = promote(root)
    except UserError as e:
        get_run_logger().warning("%s", e)
        return Completed(name="Deferred", message=str(e))
    get_run_logger().info(outcome)
    create_markdown_artifact(key="promotion", markdown=outcome, description="what the gate decided")
    return Completed(message=outcome)
