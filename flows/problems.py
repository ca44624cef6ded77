"""Flow of the stage `problems`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def problems() -> None:
    run_stage("problems")


if __name__ == "__main__":
    problems()
