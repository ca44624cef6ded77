"""Small state, the one way: files of a few values that a later process reads, none of them an output.

    write(path, value)              whole or absent, and with a checksum: temporary file, fsync, rename, fsync of the
                                    folder
    read(path, else_="...")         the value; None where there is no file, or where it is damaged: that file is then
                                    renamed to <name>.damaged, and one warning says what was wrong and what is done
                                    instead (`else_`)
    replace(path, data)             the same write for a file of somebody else's format (params.yaml)
    line(text), opened(line)        a line with a checksum, for files that are only appended to

What a run leaves in `.espalier` is of use, and never needed: a file that an accident took away must not keep a project
from running. So nothing here raises for what lies on disk; only an error of the disk while writing does.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tasks.storage.commit import flush, make_folder
from tasks.storage.faults import fault

VERSION = 1
ENDING = ".damaged"  # of a file that was renamed aside; no pattern of ours matches it
_ENVELOPE = {"version", "sha256", "value"}


def write(path: Path, value: Any) -> None:
    """Write a JSON value to `path`; a reader sees the old file or the new one, never a part, power cuts included."""
    text = json.dumps(value)
    whole = f'{{"version": {VERSION}, "sha256": "{_hash(text.encode())}", "value": {text}}}\n'
    replace(path, whole.encode())


def replace(path: Path, data: bytes) -> None:
    """Give the file `path` this content in one step. A folder in its place is renamed aside."""
    make_folder(path.parent)
    if path.is_dir():
        quarantine(path, "a folder lies in its place", "it is written anew")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        fault("state.rename")
        if path.exists():
            part.chmod(path.stat().st_mode & 0o7777)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    flush(path.parent)


def read(path: Path, *, else_: str, needs: Iterable[str] = ()) -> Any:
    """The value that `write` wrote; None where there is none, or where it is damaged.

    else_: what the caller does without it, as a clause ("it is made anew"). needs: keys that the value, a mapping, must
    have.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as e:
        return quarantine(path, f"it cannot be read: {(e.strerror or str(e)).lower()}", else_)
    value, wrong = _value(data, needs)
    return quarantine(path, wrong, else_) if wrong else value


def _value(data: bytes, needs: Iterable[str]) -> tuple[Any, str]:
    """(value, "") of the bytes of a file, or (None, what is wrong with it)."""
    if not data.strip(b"\0 \n"):
        return None, "it is empty"
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError):
        return None, "it is not JSON: cut or changed"
    if not isinstance(parsed, dict):
        return None, "it is of another kind"
    value = parsed
    if parsed.keys() & _ENVELOPE:  # without any of them: written before such files had checksums
        if parsed.get("version") != VERSION:
            return None, f"it is of version {parsed.get('version')!r}, this code reads {VERSION}"
        value = parsed.get("value")
        if parsed.keys() != _ENVELOPE or _hash(json.dumps(value).encode()) != parsed["sha256"]:
            return None, "its SHA-256 is not that of what it holds"
    missing = [k for k in needs if not isinstance(value, dict) or k not in value]
    return (None, f"it holds no {missing[0]!r}") if missing else (value, "")


def quarantine(path: Path, wrong: str, else_: str) -> None:
    """Renames `path` and reports it on stderr; if the renaming fails, only reports it."""
    aside, n = path.with_name(path.name + ENDING), 1
    while os.path.lexists(aside):
        n += 1
        aside = path.with_name(f"{path.name}.{n}{ENDING}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return  # another process was first
    except OSError as e:
        print(f"warning: {path} is damaged ({wrong}) and cannot be moved ({e.strerror}): {else_}", file=sys.stderr)
        return
    print(f"warning: {path} is damaged ({wrong}) and lies at {aside.name} now: {else_}", file=sys.stderr)


def line(text: bytes) -> bytes:
    """One line of a file that is appended to: 16 digits of the SHA-256 of `text`, a space, `text`, a line end.

    text: JSON, so without a line end of its own.
    """
    return _hash(text)[:16].encode() + b" " + text + b"\n"


def opened(data: bytes) -> bytes | None:
    """The text of a line made by `line`; None if the line is damaged."""
    text = data[17:-1]
    return text if data[16:17] == b" " and data.endswith(b"\n") and _hash(text)[:16].encode() == data[:16] else None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
