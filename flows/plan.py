"""Flow of the stage `plan`: resolve params.yaml, profile and recipe into artifacts/plan/, or refuse with one
sentence."""

import sys

from tasks.core.errors import UserError
from tasks.planning.plan import write
from tasks.runtime.prefect_shim import flow
from tasks.runtime.termination import disk_errors
from tasks.core.text import terminal


@flow
def plan() -> None:
    try:
        with disk_errors():
            write()
    except UserError as e:
        print(f"error: plan: {e}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    with terminal():
        plan()
