"""Rows that a stage has finished: they are stored in its work folder as they are made, so that a killed run resumes
after the last of them.

For stages whose rows depend on the seed and their own index alone. A file is only ever appended to; every line carries
a hash of itself, so what a kill, a full disk or a flipped bit left behind is known, and made again together with
what followed it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from synth.types import from_row, to_row
from tasks.storage import state
from tasks.storage.faults import fault

T = TypeVar("T")


class Finished:
    """`finished(key, make)` is make(), or what an earlier run of the same work folder got for `key`.

    types: dataclasses of `synth.types` that rows may have; other rows are plain JSON values. Keys are any texts, one
    for each row.
    """

    def __init__(self, path: Path, *types: type) -> None:
        self._types = {t.__name__: t for t in types}
        self.known: dict[str, Any] = {}
        good = 0
        data = _bytes(path)
        for line in data.splitlines(keepends=True):
            if (text := state.opened(line)) is None:
                break
            key, name, value = json.loads(text)
            self.known[key] = _typed(self._types[name], value) if name else value
            good += len(line)
        lost = data[good:].count(b"\n")
        if lost:
            print(f"warning: {path} is damaged: the last {lost} of its rows are made anew", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self._file.truncate(good)

    def __call__(self, key: str, make: Callable[[], T]) -> T:
        if key not in self.known:
            self._append(key, make())
        return self.known[key]

    def _append(self, key: str, value: Any) -> None:
        fault("rows.append")
        name = type(value).__name__ if type(value) in self._types.values() else ""
        text = json.dumps([key, name, to_row(value) if name else value], ensure_ascii=False).encode()
        line = state.line(text)
        self._file.write(line[: len(line) // 2])
        self._file.flush()
        fault("rows.half")
        self._file.write(line[len(line) // 2 :])
        self._file.flush()
        self.known[key] = value


def _bytes(path: Path) -> bytes:
    """The content of the file; a file that cannot be read, or a folder in its place, is renamed."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as e:
        state.quarantine(path, (e.strerror or str(e)).lower(), "its rows are made anew")
        return b""


def _typed(cls: type, row: dict[str, Any]) -> Any:
    return from_row(cls, {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()})
