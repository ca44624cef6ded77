"""Flow of the stage `evaluate`."""

from tasks.run import flow, run_stage


@flow
def evaluate() -> None:
    run_stage("evaluate")


if __name__ == "__main__":
    evaluate()
