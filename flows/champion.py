"""Measures the champion on the current held-out questions: after a change of data there would otherwise be no scores to
compare a new model with."""

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed

from flows.pipeline import named, queued, this_run
from tasks.core.paths import project
from tasks.runtime import dvc
from tasks.schedule import server


@flow(name="champion", flow_run_name=named)
def champion() -> State:
    """Measures the champion if it has not been measured on these questions; otherwise the state is `Cached`."""
    from tasks.results.promote import measure_champion

    root = project()
    server.note(root, this_run())
    with dvc.alone(root, queue=queued):
        outcome = measure_champion(root)
    get_run_logger().info(outcome)
    return Completed(name="Cached" if outcome.endswith("already") else None, message=outcome)
