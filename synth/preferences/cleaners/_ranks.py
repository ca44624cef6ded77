"""The places of names among all, sorted, of more names than memory holds."""

from __future__ import annotations

import heapq
import json
import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import IO

import numpy as np

RUN, TEXT, READ = 1 << 16, 1 << 24, 256  # names and characters of a run; names of it that are read at once


def ranks(names: Iterable[str]) -> np.ndarray:
    """[n] int64 place of each name among the distinct ones, sorted.

    Many names are sorted in runs in a temporary file, which are then merged: 8 bytes of memory a name, and 16 a distinct
    one, which is told from others by its 64-bit hash.
    """
    stream = _runs(names)
    first, second = next(stream, []), next(stream, None)
    if second is None:
        place = {name: i for i, name in enumerate(sorted(set(first)))}
        return np.array([place[name] for name in first], dtype=np.int64)
    hashes, runs = list[np.ndarray](), list[tuple[int, ...]]()
    with tempfile.TemporaryFile() as file:
        for run in chain((first, second), stream):
            hashes.append(np.fromiter(map(hash, run), np.int64, len(run)))
            distinct, places = sorted(set(run)), [file.tell()]
            for at in range(0, len(distinct), READ):
                file.write(json.dumps(distinct[at : at + READ]).encode())
                places.append(file.tell())
            runs.append(tuple(places))
        del first, second
        file.flush()
        named, before = array("q"), None
        for name in heapq.merge(*(_read_again(file, places) for places in runs)):
            if name != before:
                named.append(hash(name))
                before = name
    merged = np.array(named, np.int64)
    by_hash = np.argsort(merged)
    merged = merged[by_hash]
    return np.concatenate([by_hash[np.searchsorted(merged, part)] for part in hashes])


def _runs(names: Iterable[str]) -> Iterator[list[str]]:
    """The names in lists of RUN, or of TEXT characters."""
    run, size = list[str](), 0
    for name in names:
        run.append(name)
        size += len(name)
        if len(run) >= RUN or size >= TEXT:
            yield run
            run, size = [], 0
    if run:
        yield run


def _read_again(file: IO[bytes], places: Sequence[int]) -> Iterator[str]:
    for begin, end in pairwise(places):
        yield from json.loads(os.pread(file.fileno(), end - begin, begin))
