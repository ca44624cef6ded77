"""Flow of the stage `rl`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def rl() -> None:
    run_stage("rl")


if __name__ == "__main__":
    rl()
