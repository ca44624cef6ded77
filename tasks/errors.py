"""What a user can fix is one sentence: what is wrong, where, and how to fix it."""

from __future__ import annotations

from synth.types import UserError, nearest

__all__ = ["TRANSIENT", "StageError", "UserError", "nearest"]

TRANSIENT = 75  # exit code of a stage that may succeed when it is tried again (EX_TEMPFAIL of sysexits.h)


class StageError(UserError):
    """A stage has failed. `transient`: a lock was held or the stage ended with the code TRANSIENT, so trying again is
    of use."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient
