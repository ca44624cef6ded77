"""Flow of the stage `questions`."""

from tasks.run import flow, run_stage


@flow
def questions() -> None:
    run_stage("questions")


if __name__ == "__main__":
    questions()
