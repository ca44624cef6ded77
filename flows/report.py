"""Flow of the stage `report`."""

from tasks.run import flow, run_stage


@flow
def report() -> None:
    run_stage("report")


if __name__ == "__main__":
    report()
