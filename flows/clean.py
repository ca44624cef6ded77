"""Flow of the stage `clean`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def clean() -> None:
    run_stage("clean")


if __name__ == "__main__":
    clean()
