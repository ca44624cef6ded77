"""Flow of the stage `preferences`."""

from tasks.run import flow, run_stage


@flow
def preferences() -> None:
    run_stage("preferences")


if __name__ == "__main__":
    preferences()
