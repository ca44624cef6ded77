"""Flow of the stage `kb`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def kb() -> None:
    run_stage("kb")


if __name__ == "__main__":
    kb()
