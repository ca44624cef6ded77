"""Flow of the stage `trajectories`."""

from tasks.run import flow, run_stage


@flow
def trajectories() -> None:
    run_stage("trajectories")


if __name__ == "__main__":
    trajectories()
