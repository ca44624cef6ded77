"""Ends a stage cleanly when the disk fails or another process asks it to end: with one sentence, and without losing
work."""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from tasks.core.errors import UserError

KEPT = "what is finished is kept, and the next run goes on from there"
REMEDIES = {
    errno.ENOSPC: "free some space (`espalier gc` removes what no run needs)",
    errno.EDQUOT: "free some space of your quota (`espalier gc` removes what no run needs)",
    errno.EROFS: "make it writable, or work in a copy elsewhere",
    errno.EACCES: "make it readable and writable for you, or work in a copy elsewhere",
    errno.EPERM: "make it readable and writable for you, or work in a copy elsewhere",
    errno.EISDIR: "a folder lies where a file should be: move it away",
    errno.ENOTDIR: "a file lies where a folder should be: move it away",
    errno.ELOOP: "a symbolic link leads to itself: remove it",
    errno.EIO: "the disk or its connection is at fault: look at it before you go on",
}


@contextmanager
def disk_errors() -> Iterator[None]:
    """Turns an error of the disk inside the block into a UserError that says how to fix it."""
    try:
        yield
    except Exception as e:
        if (sentence := of_disk(e)) is None:
            raise
        raise UserError(sentence) from e


def of_disk(error: BaseException) -> str | None:
    """The sentence for an error of the disk, None for any other. Libraries in Rust write `(os error 28)` and set no
    errno."""
    number = error.errno if isinstance(error, OSError) else None
    if number is None and (match := re.search(r"\(os error (\d+)\)", str(error))):
        number = int(match[1])
    if number not in REMEDIES:
        return None
    where = getattr(error, "filename", None) or os.getcwd()
    return f"{where}: {os.strerror(number).lower()}: {REMEDIES[number]}; {KEPT}"


def on_sigterm(name: str) -> None:
    """From now on SIGTERM ends this process with code 143, its `finally` blocks run; a second SIGTERM ends it at
    once."""

    def end(*_: object) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        print(f"{name}: ended by SIGTERM; {KEPT}", file=sys.stderr, flush=True)
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, end)
