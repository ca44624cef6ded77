"""Flow of the stage `prefer`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def prefer() -> None:
    run_stage("prefer")


if __name__ == "__main__":
    prefer()
