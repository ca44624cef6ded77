"""The places of names among all, sorted, of more names than memory holds."""

from __future__ import annotations

import heapq
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import IO

import numpy as np

RUN, TEXT, READ = 1 << 16, 1 << 24, 256  # names and characters of a run; names of it that are read at once


def ranks(names: Iterable[str]) -> np.ndarray:
    """[n] int32 place of each name among the distinct ones, sorted (`Ranks`)."""
    out = Ranks()
    for name in names:
        out.add(name)
    return out.whole()


def dense(numbers: np.ndarray) -> np.ndarray:
    """[n] int32 place of each number (at least 0) among the distinct ones: what `np.unique` says, in 4 bytes a number beside a table
    up to the greatest."""
    there = np.zeros(int(numbers.max(initial=-1)) + 1, bool)
    there[numbers] = True
    place = np.cumsum(there, dtype=np.int32)
    place -= 1
    return place[numbers]


class Ranks:
    """The places of names among the distinct ones, sorted, of names that come one by one.

    Many names are sorted in runs in a temporary file, which are then merged: 8 bytes of memory a name, 4 once all are there, and 24 a
    distinct one, which is told from others by its 64-bit hash.
    """

    def __init__(self) -> None:
        self._run, self._size = list[str](), 0
        self._hashes, self._runs = list[np.ndarray](), list[tuple[int, ...]]()
        self._file: IO[bytes] | None = None

    def add(self, name: str) -> None:
        if len(self._run) >= RUN or self._size >= TEXT:
            self._spill()
        self._run.append(name)
        self._size += len(name)

    def _spill(self) -> IO[bytes]:
        """The names that are held go into the file, sorted."""
        file = self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115 (open as long as names come)
        self._hashes.append(np.fromiter(map(hash, self._run), np.int64, len(self._run)))
        distinct, places = sorted(set(self._run)), [file.tell()]
        for at in range(0, len(distinct), READ):
            file.write(json.dumps(distinct[at : at + READ]).encode())
            places.append(file.tell())
        self._runs.append(tuple(places))
        self._run, self._size = [], 0
        return file

    def whole(self) -> np.ndarray:
        """[n] int32, once all names were added."""
        if self._file is None:
            place = {name: i for i, name in enumerate(sorted(set(self._run)))}
            return np.array([place[name] for name in self._run], dtype=np.int32)
        named, before = array("q"), None
        with self._spill() as file:
            file.flush()
            for name in heapq.merge(*(_read_again(file, places) for places in self._runs)):
                if name != before:
                    named.append(hash(name))
                    before = name
        merged = np.frombuffer(named, np.int64)
        by_hash = np.argsort(merged)
        merged = merged[by_hash]
        del named
        by_hash = by_hash.astype(np.int32)
        out, a = np.empty(sum(map(len, self._hashes)), np.int32), 0
        for part in self._hashes:
            out[a : (a := a + len(part))] = by_hash[np.searchsorted(merged, part)]
        return out


def _read_again(file: IO[bytes], places: Sequence[int]) -> Iterator[str]:
    for begin, end in pairwise(places):
        yield from json.loads(os.pread(file.fileno(), end - begin, begin))
