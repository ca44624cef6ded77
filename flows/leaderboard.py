"""Recipes side by side, some minutes at a time: what an earlier run has done is kept, and the next goes on from
there."""

import os
from typing import Annotated

from prefect import flow, get_run_logger
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import Field

from flows.pipeline import named, this_run
from tasks.core.errors import StageError, UserError
from tasks.core.paths import project
from tasks.runtime import process
from tasks.runtime.dvc import environment
from tasks.schedule import server


@flow(name="leaderboard", flow_run_name=named)
def leaderboard(minutes: Annotated[float, Field(gt=0)] = 60.0) -> State:
    """`make leaderboard` for so many minutes, in a process group that ends with this run.

    Args:
        minutes: how long it runs; what is not done then is gone on with the next time
    """
    root = project()
    if not (root / "benchmarks" / "leaderboard.py").exists():
        raise UserError(f"{root} has no benchmarks/leaderboard.py: the leaderboard runs in a checkout of Espalier")
    server.note(root, this_run())
    lines = ["nothing was left to run"]

    def hear(line: str) -> None:
        lines.append(line)
        get_run_logger().info(line)

    command = process.ending_with_us("benchmarks.leaderboard", "--minutes", str(minutes))
    here = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])  # benchmarks/ is not installed
    if code := process.run_group(command, cwd=root, env={**environment(), "PYTHONPATH": here}, each=hear):
        raise StageError(f"the leaderboard ended with code {code}: {lines[-1]}", transient=False)
    return Completed(message=lines[-1])
