"""`python -m tasks.runtime.dvc_process ARGS`: `dvc ARGS` that ends with code 75 where a stage may succeed if it is tried
again, and without one warning.

DVC ends with 255 whatever the code of its stage was, so whoever started it (a batch system, a cron job) could not know
whether to try again.

Before an experiment DVC checks out what dvc.lock names, and warns "No file hash info found for ... It won't be created"
of every output that was never made: in a new project of all of them, although the run is about to make them.
"""

from __future__ import annotations

import logging
import runpy
import sys

from tasks.core.errors import TRANSIENT, may_pass

NEVER_MADE = "No file hash info found for"
LOGGERS = ("dvc_data.hashfile.checkout", "dvc_data.index.checkout")


def news(record: logging.LogRecord) -> bool:
    """Whether a user can do something with this message."""
    return not str(record.msg).startswith(NEVER_MADE)


def quieten() -> None:
    """Sets the filter on the loggers that give the warning."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(news)


def main() -> int:
    """Runs DVC with the arguments of this process, and returns its exit code, or TRANSIENT in place of that of a stage
    that may be tried again."""
    from dvc.stage.exceptions import StageCmdFailedError

    codes: list[int] = []
    said = StageCmdFailedError.__init__

    def noted(self: StageCmdFailedError, cmd: str, status: int | None = None) -> None:
        codes.append(status or 0)
        said(self, cmd, status)

    StageCmdFailedError.__init__ = noted
    try:
        runpy.run_module("dvc", run_name="__main__", alter_sys=True)
    except SystemExit as e:
        code = e.code if isinstance(e.code, int) else int(bool(e.code))
        return TRANSIENT if code and codes and may_pass(codes[-1]) else code
    return 0


if __name__ == "__main__":
    quieten()
    sys.exit(main())
