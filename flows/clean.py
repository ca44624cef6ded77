"""Flow of the stage `clean`."""

from tasks.run import flow, run_stage


@flow
def clean() -> None:
    run_stage("clean")


if __name__ == "__main__":
    clean()
