"""Flow of the stage `reward`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def reward() -> None:
    run_stage("reward")


if __name__ == "__main__":
    reward()
