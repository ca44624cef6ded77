"""Flow of the stage `reward`."""

from tasks.run import flow, run_stage


@flow
def reward() -> None:
    run_stage("reward")


if __name__ == "__main__":
    reward()
