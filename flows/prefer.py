"""Flow of the stage `prefer`."""

from tasks.run import flow, run_stage


@flow
def prefer() -> None:
    run_stage("prefer")


if __name__ == "__main__":
    prefer()
