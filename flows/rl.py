"""Flow of the stage `rl`."""

from tasks.run import flow, run_stage


@flow
def rl() -> None:
    run_stage("rl")


if __name__ == "__main__":
    rl()
