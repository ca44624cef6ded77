"""Which pairs may be copies of each other, by their prompts alone: classes of pairs that can be compared apart from all others.

Two pairs are copies only where their prompts hold the same numbers and are of Jaccard similarity >= t. So prompts are joined
that are so, found by the prefix filter (`duplicates.py`), and a class is what hangs together. Grams of prompts and the keys by
which they meet lie in temporary files, keys in parts by their last bits; in memory are 12 bytes a pair and some 60 a distinct
prompt, and a table of counts of at most 268 MB.

Prompts that meet are first compared by a sketch, the 128 bits that the last seven bits of their grams name: of sets A and B
|A ^ B| <= (1 - t) / (1 + t) (|A| + |B|) if they are similar, and their sketches differ in no more bits. Exact comparison
of the grams follows, unless the two hang together already.
"""

from __future__ import annotations

import os
import re
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from synth.preferences.cleaners._filed import Buckets
from synth.preferences.cleaners._grams import frequencies, gram_sets, jaccard, mix

NUMBER = re.compile(r"\d+")
READ = 1 << 12  # pairs whose prompts are read at once
GRAMS = 1 << 20  # grams that are worked on at once
KEYS = 1 << 22  # keys that are sorted at once
COUPLES = 1 << 20  # couples whose sketches are compared at once
CELLS = 26  # bits of the greatest table of counts


class Prompts:
    """The distinct prompts of pairs. of [pairs] int32: the place of each pair's; start, size [prompts]: its grams in the file;
    sketch [prompts, 2] uint64; numbers [prompts] int64, the same where they hold the same."""

    def __init__(self, texts: Iterable[str], ngram: int, written: Callable[[str], bytes]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as grams are read)
        every, names, size, numbers, sketches = array("q"), array("q"), array("i"), array("q"), array("Q")
        stream = iter(texts)
        while part := list(islice(stream, READ)):
            every.extend(map(hash, part))
            distinct = list(dict.fromkeys(part))  # a prompt of two parts is read twice, and the second forgotten below
            grams = gram_sets(distinct, n=ngram, written=written)
            names.extend(map(hash, distinct))
            size.extend(map(len, grams))
            numbers.extend(hash(tuple(sorted(NUMBER.findall(text)))) for text in distinct)
            whole = np.concatenate(grams)
            self._file.write(whole.tobytes())
            sketches.frombytes(_sketch(whole, np.array([len(g) for g in grams])).tobytes())
        self._file.flush()
        sizes = np.array(size, np.int32)
        start = np.cumsum(sizes, dtype=np.int64) - sizes
        columns = np.array(names, np.int64), start, sizes, np.array(numbers), np.array(sketches).reshape(-1, 2)
        del names, size, numbers, sketches, start, sizes
        first = _firsts(columns[0])
        hashes, self.start, self.size, self.numbers, self.sketch = (
            columns if len(first) == len(columns[0]) else [x[first] for x in columns]
        )
        del columns, first
        by_hash = np.argsort(hashes)
        hashes, by_hash = hashes[by_hash], by_hash.astype(np.int32)
        self.of = np.empty(len(every), np.int32)
        for a in range(0, len(every), READ):
            self.of[a : a + READ] = by_hash[np.searchsorted(hashes, np.array(every[a : a + READ], np.int64))]

    def __len__(self) -> int:
        return len(self.size)

    def grams(self, k: int) -> np.ndarray:
        data = os.pread(self._file.fileno(), 4 * int(self.size[k]), 4 * int(self.start[k]))
        return np.frombuffer(data, np.uint32)

    def parts(self) -> Iterator[tuple[int, list[np.ndarray]]]:
        """(place of the first, sets) of all prompts, in order, of about GRAMS grams."""
        ends = np.cumsum(self.size)
        a = 0
        while a < len(self):
            b = max(a + 1, int(np.searchsorted(ends, (ends[a - 1] if a else 0) + GRAMS, side="right")))
            yield a, [self.grams(k) for k in range(a, b)]
            a = b


def _firsts(hashes: np.ndarray) -> np.ndarray:
    """The places of those that did not come before, in order."""
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    new = np.ones(len(order), bool)
    new[1:] = ranked[1:] != ranked[:-1]
    return np.sort(order[new])


def _sketch(grams: np.ndarray, size: np.ndarray) -> np.ndarray:
    """[sets, 2] uint64 of sets of `size` grams, one after the other."""
    out = np.zeros((len(size), 2), np.uint64)
    bit = np.uint64(1) << (grams & np.uint32(63)).astype(np.uint64)
    full = np.flatnonzero(size)
    begin = (np.cumsum(size) - size)[full]
    for half in range(2):
        mine = np.where((grams >> np.uint32(6)) & np.uint32(1) == half, bit, np.uint64(0))
        if len(full):
            out[full, half] = np.bitwise_or.reduceat(mine, begin)
    return out


class _Classes:
    """Sets that are joined (union-find with halved paths)."""

    def __init__(self, n: int) -> None:
        self.above = np.arange(n, dtype=np.int32)

    def root(self, k: int) -> int:
        above = self.above
        while above[k] != k:
            above[k] = above[above[k]]
            k = int(above[k])
        return k

    def roots(self) -> np.ndarray:
        """[n]"""
        out = self.above
        while (out != out[out]).any():
            out = out[out]
        return out


def classes(
    prompts: Prompts,
    threshold: float,
    rare: Callable[[Sequence[np.ndarray], np.ndarray], Iterator[np.ndarray]],
) -> np.ndarray:
    """[prompts] the class of each, by its first prompt. rare: (sets, counts of grams by cell) -> the rarest grams of each, among
    which two that are similar share one."""
    joined = _Classes(len(prompts))
    if len(prompts) < 2:
        return joined.above
    for key, owner in _keys(prompts, rare):
        order = np.argsort(key, kind="stable")  # owners of a key ascend
        key, owner = key[order], owner[order]
        at = np.flatnonzero(key[1:] == key[:-1])
        lag = 1
        while len(at):
            for part in np.array_split(at, -(-len(at) // COUPLES)):
                _join(prompts, joined, owner[part], owner[part + lag], threshold)
            lag += 1
            at = at[at + lag < len(key)]
            at = at[key[at] == key[at + lag]]
    return joined.roots()


def _keys(
    prompts: Prompts, rare: Callable[[Sequence[np.ndarray], np.ndarray], Iterator[np.ndarray]]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(key uint64, prompt int32) of the rarest grams of prompts beside their numbers, in parts: all that share a key are in one."""
    total = int(prompts.size.sum())
    often = frequencies((sets for _, sets in prompts.parts()), total, CELLS)
    with Buckets(-(-total // KEYS), [("key", np.uint64), ("owner", np.int32)]) as buckets:
        for first, sets in prompts.parts():
            kept = list(rare(sets, often))
            owner = np.repeat(np.arange(first, first + len(sets), dtype=np.int32), [len(x) for x in kept])
            key = mix(np.concatenate(kept) ^ mix(prompts.numbers[owner].view(np.uint64)))
            buckets.add(key, key=key, owner=owner)
        del often
        for part in buckets.parts():
            yield np.ascontiguousarray(part["key"]), np.ascontiguousarray(part["owner"])


def _join(prompts: Prompts, joined: _Classes, a: np.ndarray, b: np.ndarray, threshold: float) -> None:
    size = prompts.size
    mine, theirs = size[a], size[b]
    near = (prompts.numbers[a] == prompts.numbers[b]) & (joined.above[a] != joined.above[b])
    near &= np.minimum(mine, theirs) >= threshold * np.maximum(mine, theirs) - 1e-6
    a, b = a[near], b[near]
    apart = np.bitwise_count(prompts.sketch[a] ^ prompts.sketch[b]).sum(axis=1, dtype=np.int64)
    near = apart <= (1 - threshold) / (1 + threshold) * (size[a] + size[b]) + 1e-6
    for x, y in zip(a[near].tolist(), b[near].tolist(), strict=True):
        p, q = joined.root(x), joined.root(y)
        if p != q and jaccard(prompts.grams(x), prompts.grams(y)) >= threshold:
            joined.above[max(p, q)] = min(p, q)
