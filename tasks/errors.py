"""What a user can mend is one sentence: what is wrong, where, and how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

TRANSIENT = 75  # exit code of a stage that may succeed when it is tried again (EX_TEMPFAIL of sysexits.h)


class UserError(ValueError):
    """A mistake in the user's files or settings. The command line prints the sentence, without a traceback, and exits with code 2."""


class StageError(UserError):
    """A stage has failed. `transient`: a lock was held or the stage ended with the code TRANSIENT, so trying again is of use."""

    def __init__(self, message: str, *, transient: bool) -> None:
        super().__init__(message)
        self.transient = transient


def nearest(name: str, valid: Iterable[str]) -> str:
    """The end of an error sentence: "did you mean 'quantile'? (valid: grpo, quantile)"; without a near name, the list alone."""
    valid = sorted(valid)
    close = difflib.get_close_matches(name.replace("-", "_"), valid, cutoff=0.5) or difflib.get_close_matches(name, valid, cutoff=0.5)
    swapped = [c for c in close if sorted(c) == sorted(name)]  # the commonest slip, which difflib ranks no higher than a wrong letter
    shown = ", ".join(valid) if valid else "there is none"
    return f"did you mean {(swapped or close)[0]!r}? (valid: {shown})" if close else f"valid: {shown}"
