"""Flow of the stage `problems`."""

from tasks.run import flow, run_stage


@flow
def problems() -> None:
    run_stage("problems")


if __name__ == "__main__":
    problems()
