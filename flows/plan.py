"""Flow of the stage `plan`: resolve params.yaml, profile and recipe into artifacts/plan/, or refuse with one sentence."""

import sys

from tasks.ending import disk_errors
from tasks.errors import UserError
from tasks.planning.plan import write
from tasks.run import flow


@flow
def plan() -> None:
    try:
        with disk_errors():
            write()
    except UserError as e:
        print(f"error: plan: {e}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    plan()
