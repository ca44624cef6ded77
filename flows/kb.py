"""Flow of the stage `kb`."""

from tasks.run import flow, run_stage


@flow
def kb() -> None:
    run_stage("kb")


if __name__ == "__main__":
    kb()
