"""Rows of SQLite written as pages of its file: what inserts in the order of the key would write, without a call for each.

SQLite makes the file with its empty tables and indexes; `SqlitePages` fills them. The format is that of
https://www.sqlite.org/fileformat2.html, which SQLite promises to keep; `PRAGMA integrity_check` says whether it was kept.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa

from synth.knowledge.arrow_texts import contents, pc

_ROWS, _KEYS = 0x0D, 0x0A  # pages of rows by number, and by key
_ABOVE = {_ROWS: 0x05, _KEYS: 0x02}  # pages that lead to these
_BYTES = pa.large_binary()


class SqlitePages:
    """A file of SQLite that nobody else has open, to be filled within `with`. Raises ValueError for one that is made in
    another way than SQLite does by default."""

    def __init__(self, path: Path) -> None:
        with sqlite3.connect(path) as connection:
            self._roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master"))
        connection.close()
        self.file = path.open("r+b")
        head = self.file.read(100)
        self.size = int.from_bytes(head[16:18], "big")
        self.pages = self.file.seek(0, 2) // max(1, self.size)
        if self.size < 512 or head[18:21] != b"\x01\x01\x00" or any(head[52:56]) or head[56:60] != b"\0\0\0\x01":
            raise ValueError(f"{path} is no file of SQLite as it makes them by default: create it anew")

    def __enter__(self) -> SqlitePages:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.file.seek(24)
        changes = (int.from_bytes(self.file.read(4), "big") + 1).to_bytes(4, "big")
        for place, value in ((24, changes), (28, self.pages.to_bytes(4, "big")), (92, changes)):
            self.file.seek(place)
            self.file.write(value)
        self.file.close()

    def fill(self, name: str) -> _Tree:
        """The rows of an empty table or index, to be given within `with`."""
        return _Tree(self, self._roots[name])

    def append(self, page: bytes) -> int:
        """The number that pages have been given, the first of them; each has `size` bytes."""
        self.file.seek(0, 2)
        self.file.write(page)
        first = self.pages + 1
        self.pages += len(page) // self.size
        return first

    def page(self, kind: int, cells: Sequence[bytes], right: int) -> bytes:
        """A page of cells that lead to other pages."""
        at, places = self.size, []
        for cell in reversed(cells):
            at -= len(cell)
            places.append(at.to_bytes(2, "big"))
        head = bytes([kind, 0, 0]) + len(cells).to_bytes(2, "big") + at.to_bytes(2, "big") + b"\0"
        head += right.to_bytes(4, "big") + b"".join(reversed(places))
        return head.ljust(at, b"\0") + b"".join(cells)


class _Tree:
    """A table or an index, in the order of the key. Each page but the last of its level is as full as it can be."""

    def __init__(self, of: SqlitePages, root: int) -> None:
        self._of, self._root = of, root
        of.file.seek((root - 1) * of.size)
        head = of.file.read(8)
        self._kind = head[0]
        assert self._kind in _ABOVE and not any(head[1:5]), "what is filled is empty"
        self._waiting = pa.array([], _BYTES)  # cells that fit on a page
        self._numbers = np.zeros(0, np.int64)  # of these
        # above the leaves: pages, each with what leads beyond it, and the bytes that these take
        self._levels: list[tuple[list[tuple[int, bytes]], int]] = []
        # bytes of a row that lie on a page, and at least if more
        self._most = of.size - 35 if self._kind == _ROWS else (of.size - 12) * 64 // 255 - 23
        self._least = (of.size - 12) * 32 // 255 - 23

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None and len(self._waiting):
            self._finish()

    def add(self, columns: Sequence[pa.Array], numbers: np.ndarray | None = None) -> None:
        """Rows that come after those before. columns: pa.large_string, or whole numbers from 0; key first. numbers [rows]: of
        a table that is not WITHOUT ROWID, where a column INTEGER PRIMARY KEY holds nulls."""
        assert (numbers is None) == (self._kind == _KEYS)
        if not len(columns[0]):
            return
        cells = self._cells(columns, numbers)
        cells = pa.concat_arrays([self._waiting, cells]) if len(self._waiting) else cells
        numbers = None if numbers is None else np.concatenate([self._numbers, numbers])
        ends = _ends(cells)
        taken = (ends - ends[0] + 2 * np.arange(len(ends))).tolist()  # with two bytes each that say where it is
        begin, starts = 0, []
        while (end := bisect_right(taken, taken[begin] + self._of.size - 8) - 1) < len(cells):
            starts.append(begin)
            begin = end
        if starts:
            stops = np.array([*starts[1:], begin], np.int64)
            if numbers is None:  # the last cell of each page leads to the next
                stops -= 1
                after = cells.take(pa.array(stops)).to_pylist()
            else:
                after = _varints(numbers[stops - 1][:, None]).to_pylist()
            first = self._of.append(self._leaves(cells, ends, np.array(starts, np.int64), stops))
            for i, cell in enumerate(after):
                self._up(0, first + i, cell)
        self._waiting = pa.concat_arrays([cells.slice(begin)])
        if numbers is not None:
            self._numbers = numbers[begin:]

    def _cells(self, columns: Sequence[pa.Array], numbers: np.ndarray | None) -> pa.Array:
        """Each row as a cell: its length, its number, the length of the head, the kinds of the values; then these."""
        n, k, head = len(columns[0]), len(columns), 1 if numbers is None else 2
        kinds, lengths, values = np.zeros((n, k + head + 1), np.int64), np.zeros(n, np.int64), []
        for i, column in enumerate(columns):
            if pa.types.is_null(column.type):
                continue
            if pa.types.is_integer(column.type):
                kinds[:, i + head + 1], value = _integers(column.to_numpy().astype(np.int64))
            else:
                value = column.cast(_BYTES)
                length = pc.add(pc.multiply(pc.binary_length(value), 2), 13)
                kinds[:, i + head + 1] = pc.coalesce(length, 0).to_numpy(zero_copy_only=False)
                value = pc.coalesce(value, pa.scalar(b"", _BYTES)) if value.null_count else value
            lengths += np.diff(_ends(value))
            values.append(value)
        kinds[:, head] = 1 + _widths(kinds[:, head + 1 :]).sum(1)
        kinds[:, 0] = lengths + kinds[:, head]
        if numbers is not None:
            kinds[:, 1] = numbers
        assert kinds[:, head].max(initial=0) < 128
        cells = pc.binary_join_element_wise(_varints(kinds), *values, pa.scalar(b"", _BYTES))
        long = kinds[:, 0] > self._most
        if long.any():
            own = [self._cut(c, p) for c, p in zip(cells.filter(pa.array(long)).to_pylist(), kinds[long, 0].tolist())]
            cells = pc.replace_with_mask(cells, pa.array(long), pa.array(own, _BYTES))
        return cells

    def _cut(self, cell: bytes, length: int) -> bytes:
        """A cell whose row does not fit on a page: the rest of the row is on pages of its own."""
        kept = self._least + (length - self._least) % (self._of.size - 4)
        kept = len(cell) - length + (kept if kept <= self._most else self._least)
        rest = [cell[at : at + self._of.size - 4] for at in range(kept, len(cell), self._of.size - 4)]
        after = self._of.pages + 2
        pages = [(after + i if i + 1 < len(rest) else 0).to_bytes(4, "big") + text for i, text in enumerate(rest)]
        return cell[:kept] + self._of.append(b"".join(p.ljust(self._of.size, b"\0") for p in pages)).to_bytes(4, "big")

    def _leaves(self, cells: pa.Array, ends: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> bytes:
        """The pages of the cells from each start to its stop."""
        many, data = stops - starts, contents(cells)
        ends = ends - ends[0]
        begin = self._of.size - (ends[stops] - ends[starts])
        heads = np.zeros((len(many), 8), np.uint8)
        heads[:, 0] = self._kind
        heads[:, 3], heads[:, 4], heads[:, 5], heads[:, 6] = many >> 8, many & 255, begin >> 8, begin & 255
        first = np.cumsum(many) - many
        every = np.arange(many.sum()) + np.repeat(starts - first, many)
        places = memoryview((np.repeat(begin - ends[starts], many) + ends[every]).astype(">u2").tobytes())
        head, none, parts = memoryview(heads.tobytes()), memoryview(bytes(self._of.size)), []
        for i, (n, at, free, a, b) in enumerate(
            zip(
                many.tolist(),
                first.tolist(),
                (begin - 8 - 2 * many).tolist(),
                ends[starts].tolist(),
                ends[stops].tolist(),
                strict=True,
            )
        ):
            parts += [head[8 * i : 8 * i + 8], places[2 * at : 2 * (at + n)], none[:free], data[a:b]]
        return b"".join(parts)

    def _up(self, level: int, page: int, cell: bytes) -> None:
        """The cell after a page goes to the level above."""
        cells, size = self._levels[level] if level < len(self._levels) else ([], 0)
        if size + len(cell) + 6 > self._of.size - 12:
            before, last = cells.pop()
            full = self._of.page(_ABOVE[self._kind], [p.to_bytes(4, "big") + c for p, c in cells], before)
            self._up(level + 1, self._of.append(full), last)
            cells, size = [], 0
        cells.append((page, cell))
        self._levels[level : level + 1] = [(cells, size + len(cell) + 6)]

    def _finish(self) -> None:
        stops, starts = np.array([len(self._waiting)]), np.array([0])
        page = self._leaves(self._waiting, _ends(self._waiting), starts, stops)
        for cells, _ in self._levels:
            page = self._of.page(
                _ABOVE[self._kind], [p.to_bytes(4, "big") + c for p, c in cells], self._of.append(page)
            )
        self._of.file.seek((self._root - 1) * self._of.size)
        self._of.file.write(page)


def _ends(cells: pa.Array) -> np.ndarray:
    """Where the cells begin, and the last ends."""
    return np.frombuffer(cells.buffers()[1], np.int64)[cells.offset : cells.offset + len(cells) + 1]


def _widths(numbers: np.ndarray) -> np.ndarray:
    """Bytes of each as SQLite's variable-length number; below 2^35."""
    return sum(((numbers >= 1 << 7 * i).astype(np.int64) for i in range(1, 5)), np.ones(numbers.shape, np.int64))


def _integers(numbers: np.ndarray) -> tuple[np.ndarray, pa.Array]:
    """(the kind of each number, its bytes: none for 0 and 1)."""
    steps = (numbers[:, None] >= [2, 1 << 7, 1 << 15, 1 << 23, 1 << 31, 1 << 47]).sum(1)  # the highest bit is the sign
    width = np.array([0, 1, 2, 3, 4, 6, 8])[steps]
    own = numbers.astype(">i8").view(np.uint8).reshape(-1, 8)[np.arange(8) >= 8 - width[:, None]]
    starts = np.concatenate([[0], np.cumsum(width)])
    kinds = np.where(steps > 0, steps, 8 + numbers)
    return kinds, pa.Array.from_buffers(_BYTES, len(numbers), [None, pa.py_buffer(starts), pa.py_buffer(own)])


def _varints(rows: np.ndarray) -> pa.Array:
    """[rows] pa.large_binary, the numbers of each row, one after the other."""
    flat, width = rows.ravel(), _widths(rows).ravel()
    ends = np.cumsum(width)
    out = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    out[ends - 1] = flat & 127
    for i in range(1, int(width.max(initial=1))):
        long = width > i
        out[ends[long] - 1 - i] = (flat[long] >> 7 * i) & 127 | 128
    starts = np.concatenate([[0], ends[rows.shape[1] - 1 :: rows.shape[1]]])
    return pa.Array.from_buffers(_BYTES, len(rows), [None, pa.py_buffer(starts), pa.py_buffer(out)])
