"""Flow of the stage `demonstrations`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def demonstrations() -> None:
    run_stage("demonstrations")


if __name__ == "__main__":
    demonstrations()
