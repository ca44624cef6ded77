"""Errors that a user can fix are one sentence: what is wrong, where, and how to fix it."""

from __future__ import annotations

import signal

from synth.types import UserError, nearest

__all__ = ["AGAIN", "TRANSIENT", "StageError", "UserError", "ended_by", "killed", "may_pass", "nearest"]

TRANSIENT = 75  # exit code of a stage that may succeed if it is retried (EX_TEMPFAIL of sysexits.h)


AGAIN = (
    TRANSIENT,
    137,
    143,
)  # exit codes of what is tried again: it said so; SIGKILL and SIGTERM, as a shell gives them


def may_pass(code: int) -> bool:
    """Whether a stage that ended with this code may succeed if it is tried again: one of AGAIN, or a signal other than
    Ctrl-C ended it (a negative code, as Python gives it)."""
    return code in AGAIN or (code < 0 and code != -signal.SIGINT)


def killed(code: int) -> bool:
    """Whether SIGKILL ended a process with this code, as Python gives it or a shell."""
    return code in (-signal.SIGKILL, 128 + signal.SIGKILL)


def ended_by(code: int) -> str:
    """What ended a process with this exit code, as Python gives it: "SIGKILL", "code 2"."""
    return signal.Signals(-code).name if code < 0 else f"code {code}"


def sentence(stage: str, error: BaseException) -> str:
    """The sentence for the user of a stage that raised `error`; "" if it is a bug of ours. A ValueError, a LookupError
    and diverged training (FloatingPointError) carry sentences; a KeyError or a decoding error does not."""
    ours = (UserError, FileNotFoundError, PermissionError, ConnectionError, TimeoutError)
    if not isinstance(error, ours) and type(error) not in (ValueError, LookupError, FloatingPointError):
        return ""
    named = str(error).startswith((f"{stage}:", f"{stage}."))  # a sentence about a knob names the stage itself
    return str(error) if named else f"{stage}: {error}"


class StageError(UserError):
    """A stage has failed. `transient`: a lock was held, the stage ended with the code TRANSIENT, or SIGKILL ended one that can
    go on from what it has finished, so a retry may help. `code`: with which the stage ended, 0 where it is not known."""

    def __init__(self, message: str, *, transient: bool, code: int = 0) -> None:
        super().__init__(message)
        self.transient, self.code = transient, code
