"""Named fault points: where a run may die, and how a test makes it die exactly there.

`fault("checkpoint.save")` does nothing unless the environment arms that point:

    ESPALIER_FAULT=[stage/]point[:k]=action     at the k-th passage (the first without k) of the point in a process
    ESPALIER_FAULT_LOG=path                     append "stage/point" at every passage: a drill counts them, then kills
                                                at each

    kill      SIGKILL to this process          full       OSError: no space left on device
    term      SIGTERM to this process          readonly   OSError: read-only file system
    hang      sleep until ended from outside   broken     OSError: input/output error

The points are in the few files that write: a new stage gets them by using `Stage`, `Finished` and `drive`. The way of
testing is that of SQLite (sqlite.org/testing.html): count the points that a run passes, then let each of them fail in
turn.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

from tasks.core.errors import UserError, nearest

ARM, LOG = "ESPALIER_FAULT", "ESPALIER_FAULT_LOG"
POINTS = {
    "plan.write": "the stage `plan`, before its first file is written",
    "stage.begin": "lock held, work folder made, nothing computed",
    "stage.end": "all outputs written into the work folder, none in place",
    "stage.placed": "outputs in place, the work folder not yet removed",
    "commit.seal": "before the files of a folder are flushed to disk",
    "commit.manifest": "files on disk, their manifest not yet written",
    "commit.rename": "a folder is whole and sealed under its temporary name",
    "commit.between": "the earlier folder moved away, the new one not yet in its place",
    "state.rename": "a small file of state is on disk under its temporary name",
    "rows.append": "before a finished row is appended",
    "rows.half": "half a row is on disk",
    "train.source": "before the batches of a step are made, which `rl` samples",
    "train.batches": "the batches of a step are there, nothing is learned from them",
    "train.step": "after an optimizer step, before its checkpoint",
    "checkpoint.save": "before a checkpoint is written",
    "checkpoint.shares": "the shares of weights that are split over processes are on disk, the rest is not",
    "checkpoint.tensors": "the tensors of a checkpoint are on disk, the rest is not",
    "checkpoint.prune": "a checkpoint is in place, older ones are not yet removed",
}
ERRORS = {"full": errno.ENOSPC, "readonly": errno.EROFS, "broken": errno.EIO}
SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
_passed: Counter[str] = Counter()  # armed text -> passages of its point in this process
stage = ""  # the stage that this process runs


def fault(point: str) -> None:
    """Passing the point `point`. Raises LookupError for a name that POINTS does not hold, UserError for an arming that
    means nothing."""
    armed, log = os.environ.get(ARM), os.environ.get(LOG)
    if armed is None and log is None:
        return
    if point not in POINTS:
        raise LookupError(f"there is no fault point {point!r}: add it to POINTS of tasks/storage/faults.py")
    if log is not None:
        with Path(log).open("a", encoding="utf-8") as f:
            f.write(f"{stage}/{point}\n")
    if armed is not None:
        where, name, number, action = parse(armed)
        if name == point and where in ("", stage):
            _passed[armed] += 1
            if _passed[armed] == number:
                _act(action, point)


def parse(armed: str) -> tuple[str, str, int, str]:
    """(stage or "", point, number of the passage, action) of an arming. Raises UserError."""
    match = re.fullmatch(r"(?:(\w+)/)?([\w.]+)(?::([1-9]\d*))?=(\w+)", armed)
    if match is None:
        raise UserError(f"{ARM}={armed} means nothing: write [stage/]point[:k]=action, e.g. rl/train.step:3=kill")
    where, name, number, action = match.groups()
    for value, known in ((name, POINTS), (action, {**ERRORS, **SIGNALS, "hang": 0})):
        if value not in known:
            raise UserError(f"{ARM}={armed}: there is no {value!r}: {nearest(value, known)}")
    return where or "", name, int(number or 1), action


def _act(action: str, point: str) -> None:
    if action in ERRORS:
        raise OSError(ERRORS[action], f"{os.strerror(ERRORS[action])} (fault point {point})")
    if action in SIGNALS:
        os.kill(os.getpid(), SIGNALS[action])
        return
    while True:
        time.sleep(1.0)
