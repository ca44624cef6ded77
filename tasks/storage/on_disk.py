"""Rows in a temporary file, of which 8 bytes each are in memory.

rows = OnDisk(Demonstration, demonstrations)
rows[7]                                    # read from the file, anew each time
"""

from __future__ import annotations

import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from synth.types import from_row, to_row

T = TypeVar("T")


class OnDisk(Sequence[T], Generic[T]):
    """Values of one type of synth.types in a file that has no name and ends with this object."""

    def __init__(self, cls: type[T], values: Iterable[T] = ()) -> None:
        self._cls = cls
        self._file = tempfile.TemporaryFile(buffering=1 << 20)  # noqa: SIM115 (open as long as values are read)
        self._begin = array("q", [0])
        for value in values:
            self.add(to_row(value))
        self.flush()

    def add(self, row: dict[str, Any]) -> None:
        """row: what `to_row` gave. After the last, and before a process is forked, `flush`."""
        data = json.dumps(row).encode()
        self._file.write(data)
        self._begin.append(self._begin[-1] + len(data))

    def flush(self) -> None:
        self._file.flush()

    def __len__(self) -> int:
        return len(self._begin) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        i = range(len(self))[i]
        begin, end = self._begin[i], self._begin[i + 1]
        return from_row(self._cls, json.loads(os.pread(self._file.fileno(), end - begin, begin)))

    def __iter__(self) -> Iterator[T]:
        return (self[i] for i in range(len(self)))
