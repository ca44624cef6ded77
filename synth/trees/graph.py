"""Postings arranged for growing questions: each entity's facts at a fixed place, values by rank, and what satisfies a description.

Entities and literals have the numbers of `synth.postings`. Of each relation the graph holds both directions in compressed rows (`start`
[n + 1], `ends` [facts]) and, where its values have an order, the values ([n] float64, nan where there is none) and the subjects sorted by
them. `extension` is the generator's own route to what satisfies a description; `synth.prove` is the other one, and shares nothing with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from synth.kb import KB
from synth.postings import Postings
from synth.tree import Clue, Named, Node, Nothing, Span, Than
from synth.trees.spans import KINDS, value_of


class Rows(NamedTuple):
    """Compressed rows: the ends of row i are ends[start[i]:start[i + 1]], sorted. With `keys`, row i is that of the key at place i."""

    start: np.ndarray
    ends: np.ndarray
    keys: np.ndarray | None = None

    @staticmethod
    def of(source: np.ndarray, ends: np.ndarray, n: int) -> Rows:
        """Of pairs sorted by source; sources of n or more (literals) are looked up by key."""
        if len(source) and source[-1] >= n:
            keys, first = np.unique(source, return_index=True)
            return Rows(np.append(first, len(source)).astype(np.int32), ends, keys)
        start = np.zeros(n + 1, dtype=np.int32)
        np.cumsum(np.bincount(source, minlength=n), out=start[1:])
        return Rows(start, ends)

    def row(self, i: int) -> np.ndarray:
        """The ends of a source."""
        if self.keys is not None:
            i = int(self.keys.searchsorted(i))
        return self.ends[self.start[i] : self.start[i + 1]]

    def size(self, i: int) -> int:
        """How many ends a source has."""
        return len(self.row(i))

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends of many entities one after the other, and for each the position in `rows` that it belongs to."""
        first = self.start[rows]
        size = self.start[rows + 1] - first
        owner = np.repeat(np.arange(len(rows)), size)
        before = np.cumsum(size) - size
        return self.ends[np.arange(len(owner)) + (first - before)[owner]], owner


class Column:
    """One relation: `forward` from subject to value, `backward` from value to subjects.

    values   [n] float64 and `order` (subjects by rising value, `sorted` their values) where the range has an order, else None
    """

    def __init__(self, postings: Postings, number: int) -> None:
        self.relation = postings.relations[number]
        n = len(postings.ids)
        self.forward = Rows.of(*postings.block(number, True), n)
        self.backward = Rows.of(*postings.block(number, False), n)
        self.values: np.ndarray | None = None
        if self.relation.range in KINDS:
            keys, subjects = postings.block(number, False)
            distinct, place = np.unique(keys, return_inverse=True)
            each = np.array([value_of(postings.text(int(i)), self.relation.range) for i in distinct], np.float64)
            self.values = np.full(n, np.nan)
            self.values[subjects] = each[place] if len(each) else np.nan
            there = np.flatnonzero(~np.isnan(self.values))
            self.order = there[np.argsort(self.values[there], kind="stable")].astype(np.int32)
            self.sorted = self.values[self.order]

    def rows(self, forward: bool) -> Rows:
        """The compressed rows of one direction."""
        return self.forward if forward else self.backward


class Graph:
    """Entities by number (`type_of` [n] int16 into `types`; `initial`, `words` of their names) and relations by name (`columns`)."""

    def __init__(self, postings: Postings) -> None:
        self.postings, self.types, self.type_of = postings, postings.type_names, postings.types
        self.type_number = {t: i for i, t in enumerate(self.types)}
        self.n = len(postings.ids)
        self.columns = {name: Column(postings, i) for name, i in sorted(postings.number.items())}
        self.of_type = [postings.of_type(t) for t in self.types]
        self.initial = np.zeros(self.n, np.uint8)
        self.words = np.zeros(self.n, np.uint8)
        for i in range(self.n):
            name = postings.names[i]
            self.initial[i] = ord(name[0]) if "A" <= name[:1] <= "Z" else 0
            self.words[i] = min(name.count(" ") + 1, 255)
        self._known: dict[str, int] = {}
        self._id = lru_cache(maxsize=1 << 16)(postings.value)

    @staticmethod
    def of(kb: KB) -> Graph:
        """The graph of a knowledge base in memory."""
        return Graph(Postings.of(kb))

    def id(self, number: int) -> str:
        """The id of an entity, or a literal."""
        return self._id(number)

    def end(self, constant: str) -> int:
        """The number of a constant. Raises KeyError for one that no fact has."""
        number = self._known.get(constant)
        if number is None:
            number = self.postings.index(constant)
            if number < 0:
                raise KeyError(constant)
            self._known[constant] = number
        return number

    def neighbours(self, entity: int, relation: str, forward: bool) -> np.ndarray:
        """The numbers of what (entity, relation, ?) or (?, relation, entity) gives."""
        return self.columns[relation].rows(forward).row(entity)

    # ---- what satisfies a description

    def extension(self, node: Node) -> np.ndarray:
        """The numbers, rising, of the entities that satisfy a node: from its rarest clue, then checked clue by clue."""
        type_ = self.type_number.get(node.type)
        if type_ is None:
            return np.zeros(0, np.int32)
        if not node.clues:
            return self.of_type[type_]
        sizes = [self.estimate(c) for c in node.clues]
        lead = sizes.index(min(sizes))
        found = self._members(node.clues[lead], type_)
        found = found[self.type_of[found] == type_]
        for i in sorted(range(len(sizes)), key=sizes.__getitem__):
            if i != lead and len(found):
                found = found[self.holds(node.clues[i], found)]
        return found

    def estimate(self, clue: Clue | Named) -> float:
        """About how many entities satisfy a clue; exact for spans and constants."""
        if isinstance(clue, Named):
            return self.n / 8
        target, column = clue.target, self.columns[clue.relation]
        if isinstance(target, Span):
            return float(np.searchsorted(column.sorted, target.high, "right") - np.searchsorted(column.sorted, target.low, "left"))
        if isinstance(target, str):
            return float(column.rows(not clue.forward).size(self.end(target)))
        if isinstance(target, Node):
            rows = column.rows(not clue.forward)
            fan = len(rows.ends) / max(1, len(rows.start) - 1)
            inside = min((self.estimate(c) for c in target.clues), default=self.n)
            return inside * max(fan, 1.0) + 1
        return self.n if isinstance(target, Nothing) else len(column.order) / 2

    def _members(self, clue: Clue | Named, type_: int) -> np.ndarray:
        """All entities that satisfy a clue (and perhaps others of another type), rising."""
        if isinstance(clue, Clue):
            target, column = clue.target, self.columns[clue.relation]
            if isinstance(target, Span):
                low, high = np.searchsorted(column.sorted, target.low, "left"), np.searchsorted(column.sorted, target.high, "right")
                return np.sort(column.order[low:high])
            if isinstance(target, str):
                return column.rows(not clue.forward).row(self.end(target))
            if isinstance(target, Node):
                return np.unique(column.rows(not clue.forward).gather(self.extension(target))[0])
        everyone = self.of_type[type_]
        return everyone[self.holds(clue, everyone)]

    def holds(self, clue: Clue | Named, some: np.ndarray) -> np.ndarray:
        """[len(some)] bool: which of some entities satisfy a clue."""
        if isinstance(clue, Named):
            same = self.initial[some] == ord(clue.initial)
            return same & (self.words[some] == clue.words) if clue.words else same
        target, column = clue.target, self.columns[clue.relation]
        rows = column.rows(clue.forward)
        if isinstance(target, Nothing):
            return rows.start[some] == rows.start[some + 1]
        if isinstance(target, str):
            wanted = self.end(target)
            if len(some) > 64:
                return np.isin(some, column.rows(not clue.forward).row(wanted))
            ends, owner = rows.gather(some)
            found = np.zeros(len(some), bool)
            found[owner[ends == wanted]] = True
            return found
        if isinstance(target, Node):
            ends, owner = rows.gather(some)
            fits = self._fits(target, ends)
            found = np.zeros(len(some), bool)
            found[owner[fits]] = True
            return found
        value = column.values[some]
        if isinstance(target, Span):
            return (value >= target.low) & (value <= target.high)
        if isinstance(target, Than):
            other = [self.end(target.other)] if isinstance(target.other, str) else self.extension(target.other)
            against = column.values[other]
            against = against[~np.isnan(against)]
            if not len(against):
                return np.zeros(len(some), bool)
            return value > against.min() if target.larger else value < against.max()
        cut = self.cut(clue.relation, target.largest)
        return value >= cut if target.largest else value <= cut

    def cut(self, relation: str, largest: bool) -> float:
        """The last value of the top (or bottom) third of a relation's values."""
        values = self.columns[relation].sorted
        last = max(0, len(values) // 3 - 1)
        return float(values[-1 - last] if largest else values[last]) if len(values) else np.nan

    def fits(self, node: Node, entity: int) -> bool:
        """Whether an entity satisfies a node."""
        return bool(self._fits(node, np.array([entity], np.int32))[0])

    def _fits(self, node: Node, some: np.ndarray) -> np.ndarray:
        """[len(some)] bool: which of some entities satisfy a node; the rarest way first."""
        if len(some) > 512 and node.clues and min(map(self.estimate, node.clues)) < len(some):
            return np.isin(some, self.extension(node))
        left = np.nonzero(self.type_of[some] == self.type_number.get(node.type, -1))[0]
        for clue in node.clues:
            if len(left):
                left = left[self.holds(clue, some[left])]
        found = np.zeros(len(some), bool)
        found[left] = True
        return found
