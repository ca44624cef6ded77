"""Which pairs may be copies of each other, by their prompts alone: classes of pairs that can be compared apart from all others.

Two pairs are copies only where their prompts hold the same numbers and are of Jaccard similarity >= t. So prompts are joined
that are so, found by the prefix filter (`_prefix_filter.py`), and a class is what hangs together. Grams of prompts and the keys by
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
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

from synth.preferences.cleaners._filed import Buckets
from synth.preferences.cleaners._grams import frequencies, gram_sets, jaccard, mix, nth
from synth.preferences.cleaners._prefix_filter import keys, short

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


def classes(prompts: Prompts, threshold: float) -> np.ndarray:
    """[prompts] the class of each, by its first prompt."""
    joined = _Classes(len(prompts))
    if len(prompts) < 2:
        return joined.above
    for key, owner, rest in _keys(prompts, threshold):
        order = np.lexsort((owner, prompts.size[owner], key))
        key, owner, rest = key[order], owner[order], rest[order]
        group = np.cumsum(np.append(True, key[1:] != key[:-1])) - 1
        few = np.flatnonzero(group[1:] == group[:-1])
        for part in np.array_split(few, -(-len(few) // COUPLES)) if len(few) else ():
            _join(prompts, joined, owner[part], owner[part + 1], threshold)  # mostly all that there are
        for y, x in _couples(group, prompts.size[owner], rest, joined.roots()[owner], threshold):
            _join(prompts, joined, owner[y], owner[x], threshold)
    return joined.roots()


def _couples(
    group: np.ndarray, size: np.ndarray, rest: np.ndarray, root: np.ndarray, threshold: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(places, places behind them) of two of a group that may be similar by `rest` (`Keys`), without those that both hang together
    with most of it: some COUPLES at a time. group [m] ascends, and size [m] in each group."""
    both = threshold / (1 + threshold)
    inside = root == _most(group, root)[group]
    ranked = group.astype(np.int64) << 32 | size
    for here, other in ((~inside, True), (inside, ~inside)):
        others = np.flatnonzero(other & short(rest, size, threshold))
        before = np.searchsorted(others, np.arange(len(group) + 1))  # how many of the others come before a place
        x = np.flatnonzero(here)
        least = np.ceil(threshold * size[x] - 1e-6).astype(np.int64)
        most = np.clip(np.floor(rest[x] / both + 1e-6).astype(np.int64) - size[x], least - 1, None)
        low = before[np.searchsorted(ranked, (group[x] << 32) + least)]
        high = before[np.minimum(np.searchsorted(ranked, (group[x] << 32) + most, side="right"), x)]
        some = np.flatnonzero(high > low)
        x, low, many = x[some], low[some], (high - low)[some]
        ends = np.cumsum(many)
        a = 0
        while a < len(x):
            b = max(a + 1, int(np.searchsorted(ends, (ends[a - 1] if a else 0) + COUPLES, side="right")))
            each = many[a:b]
            y = others[np.repeat(low[a:b], each) + nth(each)]
            larger = np.repeat(x[a:b], each)
            near = rest[y] >= both * (size[y] + size[larger]) - 1e-6
            yield y[near], larger[near]
            a = b


def _most(group: np.ndarray, root: np.ndarray) -> np.ndarray:
    """[groups] the root that most of a group have; group [m] ascends."""
    order = np.lexsort((root, group))
    group, root = group[order], root[order]
    starts = np.flatnonzero(np.append(True, (group[1:] != group[:-1]) | (root[1:] != root[:-1])))
    many = np.diff(np.append(starts, len(root)))
    ranked = np.lexsort((-many, group[starts]))
    first = np.append(True, np.diff(group[starts][ranked]) > 0)
    return root[starts][ranked][first]


def _keys(prompts: Prompts, threshold: float) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(key uint64, prompt int32, rest int32) of the prefix filter, beside the numbers of prompts, in parts: all that share a key are
    in one."""
    total = int(prompts.size.sum())
    often = frequencies((sets for _, sets in prompts.parts()), total, CELLS)
    with Buckets(-(-total // KEYS), [("key", np.uint64), ("owner", np.int32), ("rest", np.int32)]) as buckets:
        for first, sets in prompts.parts():
            found = keys(sets, often, threshold)
            owner = (first + found.owner).astype(np.int32)
            key = mix(found.key ^ mix(prompts.numbers[owner].view(np.uint64)))
            buckets.add(key, key=key, owner=owner, rest=found.rest)
        del often
        for part in buckets.parts():
            key, owner, rest = (np.ascontiguousarray(part[name]) for name in ("key", "owner", "rest"))
            yield key, owner, rest


def _join(prompts: Prompts, joined: _Classes, a: np.ndarray, b: np.ndarray, threshold: float) -> None:
    size = prompts.size
    apart = joined.above[a] != joined.above[b]
    a, b = a[apart], b[apart]
    mine, theirs = size[a], size[b]
    near = np.minimum(mine, theirs) >= threshold * np.maximum(mine, theirs) - 1e-6
    near &= prompts.numbers[a] == prompts.numbers[b]
    a, b = a[near], b[near]
    bits = np.bitwise_count(prompts.sketch[a] ^ prompts.sketch[b]).sum(axis=1, dtype=np.int64)
    near = bits <= (1 - threshold) / (1 + threshold) * (size[a] + size[b]) + 1e-6
    for x, y in zip(a[near].tolist(), b[near].tolist(), strict=True):
        p, q = joined.root(x), joined.root(y)
        if p != q and jaccard(prompts.grams(x), prompts.grams(y)) >= threshold:
            joined.above[max(p, q)] = min(p, q)
