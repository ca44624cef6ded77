"""Flow of the stage `report`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def report() -> None:
    run_stage("report")


if __name__ == "__main__":
    report()
