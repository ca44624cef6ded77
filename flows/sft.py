"""Flow of the stage `sft`."""

from tasks.run import flow, run_stage


@flow
def sft() -> None:
    run_stage("sft")


if __name__ == "__main__":
    sft()
