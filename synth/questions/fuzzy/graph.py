"""Postings arranged for growing questions: each entity's facts in compressed rows, values by rank, and the set of
entities that satisfy a description.

Entities and literals have the numbers of `synth.knowledge.postings`. Of each relation the graph holds both directions
in compressed rows (`start` [n + 1], `ends` [facts]) and, where its values have an order, the values ([n] float64, nan
where there is none) and the subjects sorted by them. `extension` is the generator's way to compute that set;
`synth.questions.prove` is an independent one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from synth.knowledge.kb import KB
from synth.knowledge.postings import Postings
from synth.questions.fuzzy.spans import KINDS, value_of
from synth.questions.pattern import MAYBE, SURELY, Clue, Named, Node, Nothing, Span, Than, Third

SMALL = 64  # up to this many entities are checked one by one: a call to numpy costs as much as checking dozens


class Rows:
    """Compressed rows: the ends of row i are ends[start[i]:start[i + 1]], sorted. With `keys`, row i is that of the key
    at place i."""

    def __init__(self, start: np.ndarray, ends: np.ndarray, keys: np.ndarray | None = None) -> None:
        self.start, self.ends, self.keys = start, ends, keys
        self._lists: dict[int, list[int]] = {}

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
        """The ends of a source; none of a literal that only other relations have."""
        if self.keys is not None:
            key, i = i, int(self.keys.searchsorted(i))
            if i == len(self.keys) or self.keys[i] != key:
                return self.ends[:0]
        return self.ends[self.start[i] : self.start[i + 1]]

    def list(self, i: int) -> list[int]:
        """The same as a list, kept."""
        members = self._lists.get(i)
        if members is None:
            members = self._lists[i] = self.row(i).tolist()
        return members

    def size(self, i: int) -> int:
        """How many ends a source has."""
        return len(self.list(i))

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The ends of many entities one after the other, and for each the position in `rows` that it belongs to."""
        first = self.start[rows]
        size = self.start[rows + 1] - first
        owner = np.repeat(np.arange(len(rows)), size)
        before = np.cumsum(size) - size
        return self.ends[np.arange(len(owner)) + (first - before)[owner]], owner


class Column:
    """One relation: `forward` from subject to value, `backward` from value to subjects.

    values   [n] float64 and `order` (subjects by rising value, `sorted` their values) where the range has an order,
             else not there (`ordered` is False)
    most     100 if the wording says percent and no value is larger, else infinite
    """

    def __init__(self, postings: Postings, number: int) -> None:
        self.relation = postings.relations[number]
        n = len(postings.ids)
        self.forward = Rows.of(*postings.block(number, True), n)
        self.backward = Rows.of(*postings.block(number, False), n)
        each = (len(r.ends) / max(1, np.count_nonzero(np.diff(r.start))) for r in (self.backward, self.forward))
        self.fan = dict(zip((False, True), each, strict=True))  # mean ends of a source that has any
        self.ordered = self.relation.range in KINDS
        self.most = math.inf
        if self.ordered:
            keys, subjects = postings.block(number, False)
            distinct, place = np.unique(keys, return_inverse=True)
            each = np.array([value_of(postings.text(int(i)), self.relation.range) for i in distinct], np.float64)
            self.values = np.full(n, np.nan)
            self.values[subjects] = each[place] if len(each) else np.nan
            there = np.flatnonzero(~np.isnan(self.values))
            self.order = there[np.argsort(self.values[there], kind="stable")].astype(np.int32)
            self.sorted = self.values[self.order]
            if (
                re.search(r"%|\bpercent", f"{self.relation.label} {self.relation.ask_back('')}")
                and len(self.sorted)
                and self.sorted[-1] <= 100
            ):
                self.most = 100.0

    def rows(self, forward: bool) -> Rows:
        """The compressed rows of one direction."""
        return self.forward if forward else self.backward


class Graph:
    """Entities by number (`type_of` [n] int16 into `types`; `initial`, `words` of their names) and relations by name
    (`columns`)."""

    def __init__(self, postings: Postings, only: Collection[str] = ()) -> None:
        """only: the relations to hold (default: all)."""
        self.postings, self.types, self.type_of = postings, postings.type_names, postings.types
        self.type_number = {t: i for i, t in enumerate(self.types)}
        self.n = len(postings.ids)
        self.columns = {
            name: Column(postings, i) for name, i in sorted(postings.number.items()) if not only or name in only
        }
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
    def of(kb: KB, only: Collection[str] = ()) -> Graph:
        """The graph of a knowledge base in memory."""
        return Graph(Postings.of(kb), only)

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
        """The numbers of the results of (entity, relation, ?) or (?, relation, entity)."""
        return self.columns[relation].rows(forward).row(entity)

    # ---- what satisfies a description

    def extension(self, node: Node) -> np.ndarray:
        """The numbers, rising, of the entities that satisfy a node: from its rarest clue, then checked clue by clue."""
        type_ = self.type_number.get(node.type)
        if type_ is None:
            return np.zeros(0, np.int32)
        if not node.clues:
            return self.of_type[type_]
        lead, rest, size = self._lead(node)
        if size <= SMALL:
            return np.array(sorted(self._few(lead, rest, type_)), np.int32)
        members = self._members(lead, type_)
        members = members[self.type_of[members] == type_]
        for clue in rest:
            if len(members):
                members = members[self.holds(clue, members)]
        return members

    def others(self, node: Node, entity: int) -> Iterator[int]:
        """The entities other than one that satisfy a node, found lazily if they are few."""
        lead, rest, size = self._lead(node) if node.clues else (None, [], self.n)
        if lead is not None and size <= SMALL:
            yield from (x for x in self._few(lead, rest, self.type_number.get(node.type, -1)) if x != entity)
        else:
            yield from (x for x in self.extension(node).tolist() if x != entity)

    def _lead(self, node: Node) -> tuple[Clue | Named, list[Clue | Named], float]:
        """(rarest clue, the others with the rare first, about how many satisfy the rarest)."""
        if len(node.clues) == 1:
            return node.clues[0], [], self.estimate(node.clues[0])
        sizes = sorted((self.estimate(c), i) for i, c in enumerate(node.clues))
        lead, *rest = (node.clues[i] for _, i in sizes)
        return lead, rest, sizes[0][0]

    def _few(self, lead: Clue | Named, rest: Sequence[Clue | Named], type_: int) -> Iterator[int]:
        """The same as `extension`, one by one and in any order."""
        if not isinstance(lead, Clue):
            members: Iterable[int] = self._members(lead, type_).tolist()
        elif isinstance(lead.target, str):
            members = self.columns[lead.relation].rows(not lead.forward).list(self.end(lead.target))
        elif isinstance(lead.target, Node):
            rows = self.columns[lead.relation].rows(not lead.forward)
            ends = self.extension(lead.target).tolist()
            members = rows.list(ends[0]) if len(ends) == 1 else {x for e in ends for x in rows.list(e)}
        else:
            members = self._members(lead, type_).tolist()
        for x in members:
            if self.type_of[x] == type_ and all(self.true(c, x) for c in rest):
                yield x

    def true(self, clue: Clue | Named, x: int) -> bool:
        """Whether one entity satisfies a clue."""
        if isinstance(clue, Named):
            return self.initial[x] == ord(clue.initial) and clue.words in (0, self.words[x])
        target, column = clue.target, self.columns[clue.relation]
        if isinstance(target, Span):
            return bool(target.low <= column.values[x] <= target.high)
        if isinstance(target, str):
            return self.end(target) in column.rows(clue.forward).list(x)
        if isinstance(target, Node):
            return any(self.fits(target, y) for y in column.rows(clue.forward).list(x))
        return bool(self.holds(clue, np.array([x], np.int32), few=False)[0])

    def fits(self, node: Node, x: int) -> bool:
        """Whether one entity satisfies a node."""
        return self.types[self.type_of[x]] == node.type and all(self.true(c, x) for c in node.clues)

    def estimate(self, clue: Clue | Named) -> float:
        """About how many entities satisfy a clue; exact for spans and constants."""
        if isinstance(clue, Named):
            return self.n / 8
        target, column = clue.target, self.columns[clue.relation]
        if isinstance(target, Span):
            return float(column.sorted.searchsorted(target.high, "right") - column.sorted.searchsorted(target.low))
        if isinstance(target, str):
            return float(column.rows(not clue.forward).size(self.end(target)))
        if isinstance(target, Node):
            inside = min((self.estimate(c) for c in target.clues), default=self.n)
            return inside * column.fan[not clue.forward] + 1
        return self.n if isinstance(target, Nothing) else len(column.order) / 2

    def _members(self, clue: Clue | Named, type_: int) -> np.ndarray:
        """All entities that satisfy a clue (and perhaps others of another type), rising."""
        if isinstance(clue, Clue):
            target, column = clue.target, self.columns[clue.relation]
            if isinstance(target, Span):
                low, high = column.sorted.searchsorted(target.low), column.sorted.searchsorted(target.high, "right")
                return np.sort(column.order[low:high])
            if isinstance(target, str):
                return column.rows(not clue.forward).row(self.end(target))
            if isinstance(target, Node):
                return np.unique(column.rows(not clue.forward).gather(self.extension(target))[0])
        everyone = self.of_type[type_]
        return everyone[self.holds(clue, everyone)]

    def holds(self, clue: Clue | Named, some: np.ndarray, *, few: bool = True) -> np.ndarray:
        """[len(some)] bool: which of some entities satisfy a clue; `few` may be looked at one by one."""
        if (
            few
            and len(some) <= SMALL
            and not (isinstance(clue, Clue) and isinstance(clue.target, Nothing | Third | Than))
        ):
            return np.fromiter((self.true(clue, x) for x in some.tolist()), bool, len(some))
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
            held = np.zeros(len(some), bool)
            held[owner[ends == wanted]] = True
            return held
        if isinstance(target, Node):
            ends, owner = rows.gather(some)
            fits = self._fits(target, ends)
            held = np.zeros(len(some), bool)
            held[owner[fits]] = True
            return held
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
        cut, edge = self.cuts(clue.relation, target.largest)
        if target.sure:
            return value > edge if target.largest else value < edge
        return value >= cut if target.largest else value <= cut

    def cuts(self, relation: str, largest: bool) -> tuple[float, float]:
        """(the last value that may be counted into the top or bottom third of a relation's values; the value that all which
        surely lie there are beyond), see `Third`."""
        values = self.columns[relation].sorted[:: -1 if largest else 1]
        n = len(values)
        return (float(values[max(0, n * MAYBE // 30 - 1)]), float(values[n * SURELY // 30])) if n else (np.nan, np.nan)

    def _fits(self, node: Node, some: np.ndarray) -> np.ndarray:
        """[len(some)] bool: which of some entities satisfy a node; the rarest way first."""
        if len(some) > 512 and node.clues and min(map(self.estimate, node.clues)) < len(some):
            return np.isin(some, self.extension(node))
        left = np.nonzero(self.type_of[some] == self.type_number.get(node.type, -1))[0]
        for clue in node.clues:
            if len(left):
                left = left[self.holds(clue, some[left])]
        held = np.zeros(len(some), bool)
        held[left] = True
        return held
