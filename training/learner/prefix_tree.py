"""The shared prefixes of a batch's rows, as a tree: each token of the tree is computed once.

Rows sorted by their ids are in the order of the leaves of their prefix tree, and the prefixes that neighbours share
determine the whole tree (as with a suffix array and its longest common prefixes). `prefixes` is that list, small enough
to travel with a batch; `Tree` reads it row by row, in the order of the batch: a new row continues the path of the
earlier row with which it shares most. Prompts of a group, answers of a pair, and the requests of an agent, each of
which repeats the session so far or omits a part of it, are treated alike. Tokens that the model wrote are shared like
any other: a state depends only on the ids before it.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

Prefixes = Sequence[tuple[int, int]]
# (row, from, to): tokens of an earlier row, which itself computes them
Path = tuple[tuple[int, int, int], ...]

# the share of a batch's tokens that must be shared before a pass over the tree is cheaper than the plain pass
WORTH = 0.15
# the share of a row that it must share with a row of its group, or of another group, to continue from that row
OWN, OTHER = 0.25, 0.5
LEAST = 16  # tokens of a further piece of a path: fewer cost more to look up than to compute


def prefixes(rows: Sequence[np.ndarray], groups: Sequence[int]) -> list[tuple[int, int]]:
    """For ids [n] per row: the rows in the order of their ids, each with the number of tokens that it shares with the
    row before it in that order. Empty if sharing would save less than WORTH of the tokens."""
    keys = [np.ascontiguousarray(ids, dtype=">u8").tobytes() for ids in rows]  # big-endian: bytes sort as the ids do
    order = sorted(range(len(rows)), key=keys.__getitem__)
    common = [0, *(_common(rows[a], rows[b]) for a, b in pairwise(order))]
    sorted_rows = list(zip(order, common, strict=True))
    lengths = [len(ids) for ids in rows]
    saved = sum(map(shared, paths(sorted_rows, lengths, groups)))
    return sorted_rows if saved >= WORTH * sum(lengths) else []


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n


def part(whole: Prefixes, lo: int, hi: int) -> list[tuple[int, int]]:
    """The prefixes of rows lo to hi - 1 alone, counted from lo."""
    out: list[tuple[int, int]] = []
    least = 0  # how much the next kept row shares with the last one
    for row, common in whole:
        least = min(least, common)
        if lo <= row < hi:
            out.append((row - lo, least))
            least = sys.maxsize
    return out


def shared(path: Path) -> int:
    """Tokens of a row that other rows compute."""
    return sum(hi - lo for _, lo, hi in path)


def paths(whole: Prefixes, lengths: Sequence[int], groups: Sequence[int]) -> list[Path]:
    """For each row the pieces of earlier rows that form its prefix; () for a row that is computed in full."""
    tree = Tree(whole, lengths, groups)
    return [tree.add(row) for row in range(len(lengths))]


class Tree:
    """Grows by rows, in the order of the batch (from any of them on)."""

    def __init__(self, whole: Prefixes, lengths: Sequence[int], groups: Sequence[int]) -> None:
        self.order = [row for row, _ in whole]
        self.common = [n for _, n in whole]
        self.at = {row: i for i, row in enumerate(self.order)}
        self.lengths, self.groups = lengths, groups
        self.there: list[int] = []  # positions of the added rows in the order
        self.path: dict[int, Path] = {}

    def add(self, row: int) -> Path:
        """The path of a new row. At least one token stays its own."""
        i, most = self.at[row], self.lengths[row] - 1
        k = bisect_left(self.there, i)
        near = [(min(self.common[j + 1 : i + 1]), self.order[j]) for j in self.there[max(0, k - 1) : k]]
        near += [(min(self.common[i + 1 : j + 1]), self.order[j]) for j in self.there[k : k + 1]]
        self.there.insert(k, i)
        # the most, of the same group, the earliest
        best = max(near, key=lambda x: (x[0], self.groups[x[1]] == self.groups[row], -x[1]), default=None)
        self.path[row] = () if best is None else self._from(row, best[1], min(best[0], most))
        return self.path[row]

    def _from(self, row: int, other: int, n: int) -> Path:
        """The first n tokens of another row, by the rows that compute them, if they are a large enough part of this
        row."""
        out: list[tuple[int, int, int]] = []
        for who, lo, hi in (*self.path[other], (other, shared(self.path[other]), self.lengths[other])):
            if lo < min(hi, n):
                out.append((who, lo, min(hi, n)))
        while len(out) > 1 and out[-1][2] - out[-1][1] < LEAST:
            out.pop()
        least = OWN if self.groups[other] == self.groups[row] else OTHER
        return tuple(out) if shared(tuple(out)) >= least * self.lengths[row] else ()
