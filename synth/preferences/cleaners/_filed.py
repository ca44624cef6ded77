"""Numbers in temporary files, of more rows than memory holds.

Filed      a table: rows are read a block at a time
Buckets    records that are parted by a key: a part is read as a whole
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

BLOCK = 1 << 14  # rows that are copied at once


class Filed:
    """[n, width] float64, `len(self)` rows. It ends with this object; it is read and not mapped, since pages of a mapped file count as
    memory."""

    def __init__(self, width: int) -> None:
        self.width, self._n = width, 0
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (open as long as rows are read)

    def __len__(self) -> int:
        return self._n

    def add(self, rows: np.ndarray) -> None:
        """rows [m, width]"""
        data = memoryview(rows.astype(np.float64).tobytes())
        while data:
            data = data[self._file.write(data) :]
        self._n += len(rows)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """[m, width] of a slice without a step, or of rows that ascend; what lies between the first and the last is read with them."""
        if isinstance(rows, slice):
            a, b, _ = rows.indices(self._n)
            return self._span(a, max(a, b))
        if not len(rows):
            return np.zeros((0, self.width))
        a, b = int(rows[0]), int(rows[-1]) + 1
        whole = self._span(a, b)
        return whole if b - a == len(rows) else whole[rows - a]

    def taken(self, rows: np.ndarray) -> Filed:
        """A table of some rows, in any order."""
        out = Filed(self.width)
        for a in range(0, len(rows), BLOCK):
            out.add(self.at(rows[a : a + BLOCK]))
        return out

    def at(self, rows: np.ndarray) -> np.ndarray:
        """[m, width] of rows in any order."""
        each, place = np.unique(rows, return_inverse=True)
        return np.concatenate([np.zeros((0, self.width)), *self._runs(each)])[place]

    def _runs(self, each: np.ndarray) -> Iterator[np.ndarray]:
        """Rows that ascend: those that lie close to each other are read together."""
        for part in np.split(each, np.flatnonzero(np.diff(each) > 64) + 1):
            yield self[part]

    def _span(self, a: int, b: int) -> np.ndarray:
        size = 8 * self.width
        data = b"".join(self._read(size * a, size * (b - a)))
        return np.frombuffer(data, np.float64).reshape(b - a, self.width)

    def _read(self, at: int, size: int) -> Iterator[bytes]:
        while size:
            data = os.pread(self._file.fileno(), size, at)
            if not data:
                raise OSError("a temporary file is shorter than what was written into it: is the disk full?")
            yield data
            at, size = at + len(data), size - len(data)


class Buckets:
    """Records in n parts: those of one key are in the same, in the order in which they came. It is a context, since its files end with
    it."""

    def __init__(self, n: int, dtype: Any) -> None:
        self.n, self.dtype = max(1, n), np.dtype(dtype)
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> Buckets:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def _path(self, k: int) -> str:
        return os.path.join(self._folder.name, str(k))

    def add(self, key: np.ndarray, /, **fields: np.ndarray) -> None:
        """key [m] uint64; fields: the columns [m] of the records."""
        part = (key % np.uint64(self.n)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        records = np.empty(len(key), self.dtype)
        for name, column in fields.items():
            records[name] = column[order]
        for k, (a, b) in enumerate(pairwise(np.searchsorted(part[order], np.arange(self.n + 1)).tolist())):
            if b > a:
                with open(self._path(k), "ab") as file:
                    file.write(records[a:b].tobytes())

    def parts(self) -> Iterator[np.ndarray]:
        """The records of each part that has some; it is removed from the disk."""
        for path in map(self._path, range(self.n)):
            if os.path.exists(path):
                part = np.fromfile(path, self.dtype)
                os.remove(path)
                yield part
