"""Flow of the stage `questions`."""

from tasks.run import run_stage
from tasks.runtime.prefect_shim import flow


@flow
def questions() -> None:
    run_stage("questions")


if __name__ == "__main__":
    questions()
