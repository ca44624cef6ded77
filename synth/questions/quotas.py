"""Quotas of fuzzy-tree questions, so that a set is not a few kinds of questions many times over.

A question counts under four keys: the root with the attribute that is asked, every relation that links it to something,
the shape of its tree, and the kind of its answer. A share is a wish: where the knowledge base has nothing else to ask,
questions over it fill the rest, and the card says how many. The number of questions about one attribute of one root is a
limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from synth.questions.pattern import Clue, Named, Node, Pattern, from_json, nodes
from synth.types import Problem, digest


QUOTA_FULL = "quota_full"  # the reason: what is left where the full relations and shapes are left out does not suffice


@dataclass(frozen=True, kw_only=True)
class Full:
    """What has its share of a cell, so that growing leaves it out: no link by these relations, no tree of these shapes."""

    relations: frozenset[str] = frozenset()
    shapes: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.relations or self.shapes)

    def __str__(self) -> str:
        """A few hex digits, other ones for others: part of the key of a finished question."""
        return digest(sorted(self.relations), sorted(self.shapes))[:16]


@dataclass(frozen=True, kw_only=True)
class End:
    """How the making of a cell ended.

    wanted, accepted   questions
    drawn              questions that were drawn, good or not
    over               those of the accepted that are over a share
    dry                whether each attribute of each root was drawn or had been asked as often as it may be
    """

    wanted: int
    accepted: int
    drawn: int
    over: int
    dry: bool

    def why(self) -> str:
        """Why it has fewer questions than wanted, or some over a share, in a sentence; empty where it has neither."""
        if self.accepted == self.wanted and not self.over:
            return ""
        have = f"{self.accepted} of {self.wanted}" + (f", {self.over} of them over a share" if self.over else "")
        if self.dry:
            return f"{have}: the source has no more, each attribute of each root was drawn or is asked already"
        return f"{have}: the {self.drawn} draws that it may take were used up before the roots were"


def shape(term: str | Node) -> str:
    """The shape of a description: the kinds of its clues, in a fixed order, without relations and names."""
    if isinstance(term, str):
        return "name"
    return "(" + ", ".join(sorted(_kind(clue) for clue in term.clues)) + ")"


def _kind(clue: Clue | Named) -> str:
    target = clue if isinstance(clue, Named) else clue.target
    return shape(target) if isinstance(target, str | Node) else type(target).__name__.lower()


def links(pattern: Pattern) -> set[str]:
    """The relations that link a thing of the question to another thing, named or described."""
    return {
        clue.relation
        for node in nodes(pattern.root)
        for clue in node.clues
        if isinstance(clue, Clue) and isinstance(clue.target, str | Node)
    }


class Tally:
    """Counts accepted questions under the keys of the quotas, which by default limit nothing.

    ranges          relation -> what its values are (number, year, date, string, or a type of entity); a relation that it
                    lacks has answers of the kind "other"
    root_attribute  most questions about one attribute of one root, in all cells together; 0 means no limit
    relation        largest share of the questions of a cell with a link by one relation
    shape           largest share of those whose trees have one shape
    answer          largest share of those with answers of one kind
    Raises ValueError for a share outside (0, 1] and a negative number.
    """

    def __init__(
        self,
        ranges: Mapping[str, str],
        *,
        root_attribute: int = 0,
        relation: float = 1,
        shape: float = 1,
        answer: float = 1,
    ) -> None:
        if root_attribute < 0:
            raise ValueError(f"quotas: root_attribute is {root_attribute}: give 1 or more, or 0 for no limit")
        self.shares = {"relation": relation, "shape": shape, "answer": answer}
        for name, share in self.shares.items():
            if not 0 < share <= 1:
                raise ValueError(f"quotas: {name} is {share}: give a share above 0 and up to 1 (no limit)")
        self.ranges, self.root_attribute = ranges, root_attribute
        self._roots: Counter[tuple[str, str]] = Counter()
        self._last: tuple[Problem, Pattern] | None = None
        self._cell: Counter[tuple[str, str]] = Counter()
        self._held: Counter[tuple[str, str]] = Counter()

    def begin(self) -> None:
        """A new cell: shares count from none."""
        self._cell.clear()
        self.release()

    def _keys(self, pattern: Pattern) -> Iterator[tuple[str, str]]:
        for relation in sorted(links(pattern)):
            yield "relation", relation
        yield "shape", shape(pattern.root)
        yield "answer", self.ranges.get(pattern.relation, "other")

    def _pattern(self, p: Problem) -> Pattern:
        """The pattern of a question, parsed once while it is the one that is looked at."""
        if self._last is None or self._last[0] is not p:
            self._last = p, from_json(p.lineage["pattern"])
        return self._last[1]

    def repeats(self, p: Problem) -> str:
        """What the question asks once too often, in a sentence; empty where it does not."""
        relation, root = self._pattern(p).relation, p.lineage["root"]
        return f"{self.root_attribute} about {relation} of {root} already" if self.asked(root, relation) else ""

    def asked(self, root: str, relation: str) -> bool:
        """Whether an attribute of a root was asked as often as it may be."""
        return 0 < self.root_attribute <= self._roots[root, relation]

    def full(self, relation: str, wanted: int) -> bool:
        """Whether the kind of the answers under a relation has its share of a cell of `wanted` questions."""
        return self._cell["answer", self.ranges.get(relation, "other")] >= self._most("answer", wanted)

    def shut(self, wanted: int, times: float = 1) -> Full:
        """The relations and shapes that have their share of a cell of `wanted` questions, or some times that."""
        have = {name: times * self._most(name, wanted) for name in ("relation", "shape")}
        count = self._cell + self._held
        full = {
            name: frozenset(key for (kind, key), n in count.items() if kind == name and n >= most)
            for name, most in have.items()
            if self.shares[name] < 1
        }
        return Full(relations=full.get("relation", frozenset()), shapes=full.get("shape", frozenset()))

    def _most(self, name: str, wanted: int) -> int:
        return math.ceil(self.shares[name] * wanted - 1e-9)

    def over(self, p: Problem, wanted: int, times: float = 1) -> dict[str, str]:
        """The shares of a cell of `wanted` questions that the question would exceed, or some times these: quota -> a
        sentence."""
        return self._over(p, wanted, self._cell, times)

    def _over(self, p: Problem, wanted: int, count: Mapping[tuple[str, str], int], times: float = 1) -> dict[str, str]:
        result: dict[str, str] = {}
        for name, key in self._keys(self._pattern(p)):
            most = self._most(name, wanted)
            if count.get((name, key), 0) >= times * most:
                result.setdefault(name, f"{most} of {wanted} have the {name} {key} already")
        return result

    def hold(self, p: Problem, wanted: int) -> bool:
        """Counts a question that waits for nothing but the share of the kind of its answer under its relations and its shape:
        what may fill the cell in the end keeps the other shares all the same. False, and not counted, for one over these."""
        if self._over(p, wanted, self._cell + self._held).keys() - {"answer"}:
            return False
        self._held.update(key for key in self._keys(self._pattern(p)) if key[0] != "answer")
        return True

    def release(self) -> None:
        """Those that waited count no more."""
        self._held.clear()

    def add(self, p: Problem) -> None:
        pattern = self._pattern(p)
        self._roots[p.lineage["root"], pattern.relation] += 1
        self._cell.update(self._keys(pattern))


def diversity(problems: Sequence[Problem], ranges: Mapping[str, str]) -> dict[str, float | dict[str, float]]:
    """For a card: the share of questions that ask an attribute of a root again, and the largest shares by relation, shape and
    answer (three of each)."""
    tally = Tally(ranges)
    for p in problems:
        tally.add(p)
    n = max(1, len(problems))
    result: dict[str, float | dict[str, float]] = {
        "asked_again": round(sum(c - 1 for c in tally._roots.values()) / n, 4)
    }
    for name in ("relation", "shape", "answer"):
        counts = Counter({key: c for (kind, key), c in tally._cell.items() if kind == name})
        result[name] = {key: round(c / n, 4) for key, c in sorted(counts.items(), key=lambda x: (-x[1], x[0]))[:3]}
    return result
