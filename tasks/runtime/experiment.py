"""`python -m tasks.runtime.experiment ARGS`: `dvc ARGS` without one warning.

Before an experiment DVC checks out what dvc.lock names, and warns "No file hash info found for ... It won't be created"
of every output that was never made: in a new project of all of them, although the run is about to make them.
"""

from __future__ import annotations

import logging
import runpy

NEVER_MADE = "No file hash info found for"
LOGGERS = ("dvc_data.hashfile.checkout", "dvc_data.index.checkout")


def news(record: logging.LogRecord) -> bool:
    """Whether a user can do something with this message."""
    return not str(record.msg).startswith(NEVER_MADE)


def quieten() -> None:
    """Sets the filter on the loggers that give the warning."""
    for name in LOGGERS:
        logging.getLogger(name).addFilter(news)


if __name__ == "__main__":
    quieten()
    runpy.run_module("dvc", run_name="__main__", alter_sys=True)
