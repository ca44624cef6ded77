"""Rows that a stage has finished: they are stored in its work folder as they are made, so that a killed run resumes
after the last of them.

For stages whose rows depend on the seed and their own index alone. A file is only ever appended to; every line carries
a hash of itself, so what a kill, a full disk or a flipped bit left behind is known, and made again together with
what followed it. Rows stay on disk, and so do their keys and places (synth/lookup.py).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, TypeVar

from synth.lookup import Lookup
from synth.types import from_row, to_row
from tasks.core.errors import UserError
from tasks.storage import state
from tasks.storage.faults import fault

T = TypeVar("T")


def joined(key: tuple[Any, ...]) -> str:
    """The key of a row that several values tell apart."""
    return "/".join(map(str, key))


class Finished:
    """`finished(key, make)` is make(), or what an earlier run of the same work folder got for `key`.

    types: dataclasses of `synth.types` that rows may have; other rows are plain JSON values. Keys are any texts, one
    for each row.
    """

    def __init__(self, path: Path, *types: type) -> None:
        self.path, self._types = path, {t.__name__: t for t in types}
        self._at = Lookup[int]()  # key -> the byte at which its line begins
        good = lost = 0
        for line in _lines(path):
            text = None if lost else state.opened(line)
            if text is None:
                lost += line.endswith(b"\n")
                if not lost:
                    break
                continue
            self._at[json.loads(text)[0]] = good
            good += len(line)
        if lost:
            print(f"warning: {path} is damaged: the last {lost} of its rows are made anew", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b")
        self._file.truncate(good)

    def __call__(self, key: str, make: Callable[[], T]) -> T:
        if (at := self._at.get(key)) is not None:
            return self._read(at)
        value = make()
        self._append(key, value)
        return value

    def __contains__(self, key: str) -> bool:
        return key in self._at

    def keys(self) -> Collection[str]:
        """Of all rows, in the order of their bytes."""
        return self._at.keys()

    def _read(self, at: int) -> Any:
        self._file.seek(at)
        if (text := state.opened(self._file.readline())) is None:
            raise UserError(
                f"{self.path} was damaged while it was in use: run the stage again, which makes its last rows anew"
            )
        _, name, value = json.loads(text)
        return from_row(self._types[name], value) if name else value

    def _append(self, key: str, value: Any) -> None:
        fault("rows.append")
        name = type(value).__name__ if type(value) in self._types.values() else ""
        text = json.dumps([key, name, to_row(value) if name else value], ensure_ascii=False).encode()
        line = state.line(text)
        at = self._file.seek(0, os.SEEK_END)
        self._file.write(line[: len(line) // 2])
        self._file.flush()
        fault("rows.half")
        self._file.write(line[len(line) // 2 :])
        self._file.flush()
        self._at[key] = at


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of the file; a file that cannot be read, or a folder in its place, is renamed."""
    try:
        with path.open("rb") as file:
            yield from file
    except FileNotFoundError:
        return
    except OSError as e:
        state.quarantine(path, (e.strerror or str(e)).lower(), "its rows are made anew")
