"""Flow of the stage `preferences`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def preferences() -> None:
    run_stage("preferences")


if __name__ == "__main__":
    preferences()
