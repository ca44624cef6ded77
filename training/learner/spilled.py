"""Rows in a temporary file, for data that is learned from more than once and does not fit in memory."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from training.learner.pack import Row


class SpilledRows(Sequence[Row]):
    """Rows in a file that has no name and ends with this object: 5 bytes a token there; of each row its length and group
    stay in memory (12 bytes), and its scalars. Rows with columns or experts stay as they are."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._file = tempfile.TemporaryFile(buffering=1 << 20)  # noqa: SIM115 (open as long as rows are read)
        self._end, self._group, self._scalars = array("q", [0]), array("i"), array("d")
        self._names: tuple[str, ...] | None = None
        self._odd: dict[int, Row] = {}
        self._flushed = True
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        names = tuple(row.scalars)
        if self._names is None:
            self._names = names
        if row.columns or row.experts is not None or names != self._names:
            self._odd[len(self)] = row
            size = 0
            self._scalars.extend([0.0] * len(self._names))
        else:
            size = len(row.ids)
            self._file.write(row.ids.astype("<i4").tobytes())
            self._file.write(row.trainable.astype(np.uint8).tobytes())
            self._scalars.extend(row.scalars.values())
            self._flushed = False
        self._end.append(self._end[-1] + 5 * size)
        self._group.append(row.group)

    def __len__(self) -> int:
        return len(self._group)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        i = range(len(self))[i]
        if i in self._odd:
            return self._odd[i]
        if not self._flushed:
            self._file.flush()
            self._flushed = True
        begin, end = self._end[i], self._end[i + 1]
        data, n = os.pread(self._file.fileno(), end - begin, begin), (end - begin) // 5
        names = self._names or ()
        return Row(
            ids=np.frombuffer(data, "<i4", n).astype(np.int64),
            trainable=np.frombuffer(data, np.uint8, n, 4 * n).astype(bool),
            group=self._group[i],
            scalars=dict(zip(names, self._scalars[len(names) * i : len(names) * (i + 1)], strict=True)),
        )

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))


class SpilledUnits(Sequence[list[Row]]):
    """Lists of rows that belong together, as SpilledRows."""

    def __init__(self) -> None:
        self.rows, self._end = SpilledRows(), array("q", [0])

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.rows.add(row)
        self._end.append(len(self.rows))

    def __len__(self) -> int:
        return len(self._end) - 1

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(len(self))[i]]
        i = range(len(self))[i]
        return self.rows[self._end[i] : self._end[i + 1]]
