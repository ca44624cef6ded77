"""Errors that a user can fix are one sentence: what is wrong, where, and how to fix it."""

from __future__ import annotations

from synth.types import UserError, nearest

__all__ = ["TRANSIENT", "StageError", "UserError", "nearest"]

TRANSIENT = 75  # exit code of a stage that may succeed if it is retried (EX_TEMPFAIL of sysexits.h)


def sentence(stage: str, error: BaseException) -> str:
    """The sentence for the user of a stage that raised `error`; "" if it is a bug of ours. A ValueError, a LookupError
    and diverged training (FloatingPointError) carry sentences; a KeyError or a decoding error does not."""
    ours = (UserError, FileNotFoundError, PermissionError, ConnectionError, TimeoutError)
    if not isinstance(error, ours) and type(error) not in (ValueError, LookupError, FloatingPointError):
        return ""
    named = str(error).startswith((f"{stage}:", f"{stage}."))  # a sentence about a knob names the stage itself
    return str(error) if named else f"{stage}: {error}"


class StageError(UserError):
    """A stage has failed. `transient`: a lock was held or the stage ended with the code TRANSIENT, so a retry may
    help."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient
