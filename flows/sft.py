"""Flow of the stage `sft`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def sft() -> None:
    run_stage("sft")


if __name__ == "__main__":
    sft()
