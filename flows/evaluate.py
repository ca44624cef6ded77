"""Flow of the stage `evaluate`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def evaluate() -> None:
    run_stage("evaluate")


if __name__ == "__main__":
    evaluate()
