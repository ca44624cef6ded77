"""Growing a fuzzy tree: clues are added until only the root satisfies them, and then every superfluous clue is removed.

A tree begins with a branch that reaches down to a constant (the oracle's way in, and the depth of the question); vaguer
clues about the root follow until only it is left. No constant is directly linked to the root (the rule that WebShaper
states, arXiv:2507.15061), and there are at least two clues, each necessary: so no clue suffices alone.

`synth.questions.fuzzy.graph` computes what satisfies a clue. For every deletion of a clue the grower also names a
*witness*: an entity that fits the remaining clues and has another answer; `synth.questions.prove` checks it.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice
from operator import and_
from typing import NamedTuple

import numpy as np

from synth.questions.fuzzy.graph import Graph, Rows
from synth.questions.fuzzy.spans import span
from synth.questions.pattern import (
    FAR,
    Clue,
    Named,
    Node,
    Nothing,
    Pattern,
    Span,
    Than,
    Third,
    deletions,
    hub,
    inner,
    steps,
)
from synth.questions.quotas import QUOTA_FULL
from synth.questions.quotas import shape as shape_of

NAMED, THAN, NOTHING = 2, 2, 3  # fuzz levels of these kinds
_TRIES = 3  # how many branches to choose from: at a high level the one that leaves most entities
_DRAWN = 48  # branches that are drawn until one fits; each takes a tenth of a millisecond
_CHOICE = 3  # clues to choose from
_MORE = 1  # times that more branches are looked for, where vague clues complete none
_POOL = 12  # vague clues of which some are chosen
_DRAWS = 8  # of a hub with thousands of members, before all of them are looked at
_FEW = 8  # the most members of a hub among which one is identified


class Grown(NamedTuple):
    """A pattern, the root's id, the answer (entity id or literal), and the witness of each deletion (in the order of
    `tree.deletions`)."""

    pattern: Pattern
    root: str
    answer: str
    witnesses: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """depth: edges from the root to the furthest clue, at least 2. level: the target fuzz level, 1 to 4."""

    depth: int
    level: int


class Closed(frozenset):
    """Entities that a branch must avoid: those on its path, and those that are `sealed`."""

    sealed: Callable[[int], bool]

    @staticmethod
    def of(entities: Iterable[int], sealed: Callable[[int], bool]) -> Closed:
        closed = Closed(entities)
        closed.sealed = sealed
        return closed

    def __contains__(self, entity: object) -> bool:
        return super().__contains__(entity) or self.sealed(entity)  # type: ignore[arg-type]

    def __or__(self, more: Set[int]) -> Closed:  # type: ignore[override]
        return Closed.of({*self, *more}, self.sealed)


class Grower:
    """Grows trees over one graph.

    symmetric      relations whose backward direction alone is used
    twins          relations that give no clue -> the one that says the same turned round (`synth.knowledge.inverses`)
    closed_world   take every relation as complete; else only relations that say so carry vague clues
    most_clues     of the root
    most_members   entities that a constant, or a whole branch, may leave; more would be too many for a person to check
    """

    def __init__(
        self,
        graph: Graph,
        *,
        symmetric: frozenset[str] = frozenset(),
        twins: Mapping[str, str] | None = None,
        closed_world: bool = False,
        most_clues: int = 6,
        most_members: int = 100,
    ) -> None:
        self.graph, self.closed_world, self.most_clues, self.most_members = (
            graph,
            closed_world,
            most_clues,
            most_members,
        )
        self._twins = dict(twins or {})
        self._links: dict[str, list[tuple[str, bool]]] = {
            t: [] for t in graph.types
        }  # entity type -> (relation, forward)
        self._ordered: dict[str, list[str]] = {t: [] for t in graph.types}  # relations with values
        self._classes: dict[str, list[str]] = {t: [] for t in graph.types}  # many to one: "of the continent Asia"
        for name, column in graph.columns.items():
            r = column.relation
            if not len(column.forward.ends) or not (closed_world or r.complete) or name in self._twins:
                continue
            if column.ordered:
                if r.functional and r.domain in self._ordered:
                    self._ordered[r.domain].append(name)
                continue
            if name not in symmetric and r.domain in self._links:
                self._links[r.domain].append((name, True))
                distinct = np.count_nonzero(np.diff(column.backward.start))
                if r.functional and distinct * 4 <= len(column.forward.ends):
                    self._classes[r.domain].append(name)
            if not r.literal and r.range in self._links:
                self._links[r.range].append((name, False))

    def without(self, relations: frozenset[str]) -> Grower:
        """A grower over the same graph that links nothing by these relations."""
        if not relations:
            return self
        other = copy.copy(self)
        other._links = {t: [x for x in some if x[0] not in relations] for t, some in self._links.items()}
        other._classes = {t: [r for r in some if r not in relations] for t, some in self._classes.items()}
        return other

    def grow(
        self,
        root: int,
        wanted: str,
        shape: Shape,
        rng: random.Random,
        *,
        sealed: Callable[[int], bool] = lambda entity: False,
        shut: frozenset[str] = frozenset(),
    ) -> Grown | str:
        """A tree whose only instance is `root` and which asks for its one value under `wanted`; else the reason why there is none.

        `sealed` says which entities it may not touch, `shut` which shapes (`quotas.shape`) it may not have.
        """
        graph = self.graph
        column = graph.columns[wanted]
        (value,) = graph.neighbours(root, wanted, True)
        path = Closed.of({root} if column.relation.literal else {root, int(value)}, sealed)
        branches = self._branches(root, wanted, shape, path, rng)
        if not branches:
            return "no_branch"
        reason = "not_unique"
        aimed = self._aimed(root, wanted, shape, branches, path, rng)
        for node in chain(aimed, self._any(root, wanted, shape, branches[0], path, rng)):
            if len(node.clues) < 2:
                reason = "single_clue"
            elif depth(node) != shape.depth:
                reason = "shallow"
            elif min(map(steps, node.clues)) >= FAR - 1:
                reason = "no_branch"  # its constant was superfluous
            elif shut and shape_of(node) in shut:
                reason = QUOTA_FULL
            elif (witnesses := self._witnesses(node, root, column.forward, int(value))) is None:
                reason = "redundant_clue"
            else:
                pattern = Pattern(relation=wanted, forward=True, root=node)
                return Grown(pattern, graph.id(root), graph.id(int(value)), witnesses)
        return reason

    def _aimed(
        self, root: int, wanted: str, shape: Shape, branches: Sequence[Clue], path: Closed, rng: random.Random
    ) -> Iterator[Node]:
        """Descriptions of the level that is aimed at: branches with vague clues near that level."""
        graph = self.graph
        near = (c for c in self._proposals(root, wanted, shape.level, path, rng) if abs(level(c) - shape.level) < 2)
        vague = list(islice(near, _POOL))
        levels = {level(c) for c in vague}
        if not levels or not min(levels) <= shape.level <= max(levels):
            return
        more = (b for _ in range(_MORE) for b in self._branches(root, wanted, shape, path, rng))
        for first in chain(branches, more):
            left = graph.extension(Node(type=graph.types[graph.type_of[root]], clues=(first,)))
            fit = [(c, graph.holds(c, left)) for c in vague if not self._same_side(c, first)]
            sign = -1 if shape.level > 2 else 1  # of a few a high level prefers the least informative, as in _narrowed
            order = sorted(range(len(fit)), key=lambda i: (i // _CHOICE, sign * int(fit[i][1].sum())))
            sets = [(fit[i][0], _as_bits(fit[i][1])) for i in order]
            everyone = _as_bits(np.ones(len(left), bool))
            completion = _complete(sets, everyone, _as_bits(left == root), shape.level, self.most_clues - 1)
            if completion is not None:
                node = self._minimal([first, *completion], root, shape, rng)
                if reached(node, shape.depth) == shape.level:
                    yield node

    def _any(
        self, root: int, wanted: str, shape: Shape, first: Clue, path: Closed, rng: random.Random
    ) -> Iterator[Node]:
        """A description of a level near the one that is aimed at, with precise clues where vague ones do not suffice;
        nothing where it is not unique."""
        clues: list[Clue | Named] = [first]
        left = self.graph.extension(Node(type=self.graph.types[self.graph.type_of[root]], clues=(first,)))
        for near in dict.fromkeys((shape.level, max(1, shape.level - 1), 1)):
            proposals = self._proposals(root, wanted, near, path, rng)
            left = self._narrowed(left, clues, proposals, vague=shape.level > 2)
        if len(left) == 1:
            yield self._minimal(clues, root, shape, rng)

    def _narrowed(
        self, left: np.ndarray, clues: list[Clue | Named], proposals: Iterable[Clue | Named], *, vague: bool
    ) -> np.ndarray:
        """What is left of the entities that fit the clues once proposals are added to these, until one is. `vague`: of
        a few proposals the least informative."""
        proposals = (c for c in proposals if not any(self._same_side(c, d) for d in clues))
        while len(left) > 1 and len(clues) < self.most_clues:
            some = [(clue, left[self.graph.holds(clue, left)]) for clue in islice(proposals, _CHOICE)]
            if not some:
                break
            some = sorted((s for s in some if len(s[1]) < len(left)), key=lambda s: len(s[1]))
            if some:
                clue, left = some[-1 if vague else 0]
                clues.append(clue)
        return left

    # ---- clues

    def _branches(self, root: int, wanted: str, shape: Shape, path: Closed, rng: random.Random) -> list[Clue]:
        """Branches to a constant that fit the root and some others, the best first: at a higher level one that more of
        them fit, then narrower ones, with which fewer vague clues suffice."""
        type_ = self.graph.types[self.graph.type_of[root]]
        clues: list[tuple[int, Clue]] = []
        most = self.most_members * shape.level**2 // 16
        for drawn in range(_DRAWN):
            if clues and drawn >= 2 * _TRIES:
                break
            clue = self._branch(root, wanted, shape.depth, path, rng)
            if clue is None:
                break
            size = len(self.graph.extension(Node(type=type_, clues=(clue,))))
            if 2 <= size <= max(2, most):
                clues.append((size, clue))
                if len(clues) == (1 if shape.level < 3 else _TRIES):
                    break
        clues.sort(key=lambda f: f[0])
        best = (len(clues) - 1) * (shape.level - 2) // 2 if shape.level > 2 else 0
        return [clue for _, clue in (*clues[best::-1], *clues[best + 1 :])]

    def _branch(
        self, x: int, wanted: str, depth: int, path: Closed, rng: random.Random, *, but: tuple[str, bool] = ("", True)
    ) -> Clue | None:
        """A clue of x that leads through depth - 1 variables to a constant; the asked fact is not used, no entity
        twice, nor the side `but`, unless both ends are of one type (a border)."""
        for relation, forward, ends in self._sides(x, wanted, rng):
            if (relation, forward) == but and not self._within(relation):
                continue
            y = _outside(path, ends, rng)
            if y is None:
                continue
            back = (relation, not forward)  # going back by the same relation does not lead to a constant
            if depth == 2:
                clue = self._anchor(y, path | {y}, rng, but=back)
            else:
                clue = self._branch(y, "", depth - 1, path | {y}, rng, but=back)
            clue = clue or self._beside(y, depth, back, path | {y}, rng)
            if clue is not None:
                return Clue(
                    relation=relation,
                    forward=forward,
                    target=Node(type=self.graph.types[self.graph.type_of[y]], clues=(clue,)),
                )
        return None

    def _sides(self, x: int, wanted: str, rng: random.Random) -> Iterator[tuple[str, bool, list[int]]]:
        """The entities that x is linked to, by relation and direction, in random order."""
        sides = self._links[self.graph.types[self.graph.type_of[x]]]
        for relation, forward in rng.sample(sides, len(sides)):
            if self._asks(wanted, relation, forward) or forward and self.graph.columns[relation].relation.literal:
                continue
            ends = self.graph.columns[relation].rows(forward).list(x)
            if ends:
                yield relation, forward, ends

    def _asks(self, wanted: str, relation: str, forward: bool) -> bool:
        """Whether a side of the root holds the fact that is asked for."""
        return relation == wanted if forward else relation == self._twins.get(wanted)

    def _within(self, relation: str) -> bool:
        r = self.graph.columns[relation].relation
        return r.domain == r.range

    def _beside(self, x: int, depth: int, back: tuple[str, bool], path: Closed, rng: random.Random) -> Clue | None:
        """A clue of a hub x (a category, a maker): another of its members, which leads on, or is told by a constant of
        its own and, where many share that, by values."""
        relation, forward = back
        if forward or self._within(relation):
            return None
        y = _outside(path, self.graph.columns[relation].rows(forward).list(x), rng)
        if y is None:
            return None
        type_, around, there = self.graph.types[self.graph.type_of[y]], path | {y}, (relation, True)
        if depth > 2:
            inside = self._branch(y, "", depth - 1, around, rng, but=there)
            clues: list[Clue] = [inside] if inside else []
        else:
            anchor = self._anchor(y, around, rng, but=there)
            clues = [anchor] if anchor else []
            for other in rng.sample(self._ordered[type_], len(self._ordered[type_])) if anchor else ():
                if len(self.graph.extension(Node(type=type_, clues=tuple(clues)))) <= _FEW or len(clues) > 2:
                    break
                value = self._value(y, other, 1, around, rng)
                clues += [value] if value else []
        node = Node(type=type_, clues=tuple(clues))
        return Clue(relation=relation, forward=False, target=node) if clues else None

    def _anchor(self, x: int, path: Closed, rng: random.Random, *, but: tuple[str, bool] = ("", True)) -> Clue | None:
        """A clue of x with a constant that few share; not by the side `but`, unless both ends are of one type."""
        sides = self._links[self.graph.types[self.graph.type_of[x]]]
        for relation, forward in rng.sample(sides, len(sides)):
            if (relation, forward) == but and not self._within(relation):
                continue
            column = self.graph.columns[relation]
            ends = column.rows(forward).list(x)
            end = _outside(frozenset() if forward and column.relation.literal else path, ends, rng)
            if end is not None and column.rows(not forward).size(end) <= self.most_members:
                return Clue(relation=relation, forward=forward, target=self.graph.id(end))
        return None

    def _proposals(self, x: int, wanted: str, level: int, path: Closed, rng: random.Random) -> Iterator[Clue | Named]:
        """Vague clues of x, near a fuzz level, in random order, made when they are asked for."""
        graph = self.graph
        type_ = graph.types[graph.type_of[x]]
        makers: list[Callable[[], Clue | Named | None]] = []
        for relation in self._ordered[type_]:
            if relation != wanted:
                makers.append(lambda r=relation: self._value(x, r, _near(level, rng), path, rng))
        for relation, forward in self._links[type_]:
            literal = forward and graph.columns[relation].relation.literal
            if not self._asks(wanted, relation, forward) and not literal:
                makers.append(lambda r=relation, f=forward: self._linked(x, r, f, _near(level, rng), path, rng))
        makers.append(lambda: self._named(x, level))
        rng.shuffle(makers)
        for make in makers:
            clue = make()
            if clue is not None:
                yield clue

    def _value(self, x: int, relation: str, level: int, path: Closed, rng: random.Random) -> Clue | None:
        column = self.graph.columns[relation]
        value = float(column.values[x])
        if math.isnan(value):
            return None
        kind = column.relation.range
        if level == 4 and kind == "number":
            (_, top), (_, bottom) = self.graph.cuts(relation, True), self.graph.cuts(relation, False)
            if value > top or value < bottom:
                return Clue(relation=relation, forward=True, target=Third(largest=value > top))
        if (
            level == THAN
            and kind == "number"
            and rng.random() < 0.25
            and (clue := self._than(x, relation, value, path, rng)) is not None
        ):
            return clue
        vague = span(value, kind, level, rng, most=column.most)
        return None if vague is None else Clue(relation=relation, forward=True, target=vague)

    def _than(self, x: int, relation: str, value: float, path: Closed, rng: random.Random) -> Clue | None:
        """More or less than another entity of the type, which a constant of its own tells apart."""
        graph = self.graph
        column = graph.columns[relation]
        for _ in range(3):
            other = int(column.order[rng.randrange(len(column.order))])
            against = float(column.values[other])
            if other in path or against == value:
                continue
            clue = self._anchor(other, path | {x, other}, rng)
            node = clue and Node(type=graph.types[graph.type_of[other]], clues=(clue,))
            if node and len(graph.extension(node)) == 1:
                return Clue(relation=relation, forward=True, target=Than(larger=value > against, other=node))
        return None

    def _linked(
        self, x: int, relation: str, forward: bool, level: int, path: Closed, rng: random.Random
    ) -> Clue | None:
        graph = self.graph
        column = graph.columns[relation]
        ends = column.rows(forward).list(x)
        if not ends:  # in a closed world too: where a relation has gaps, what is not there may be unknown
            absent = level >= NOTHING and column.relation.complete
            return Clue(relation=relation, forward=forward, target=Nothing()) if absent else None
        y = _outside(path, ends, rng)
        if y is None:
            return None
        type_ = graph.types[graph.type_of[y]]
        inside: Clue | Named | None = None
        if level == 1:
            values = [self._value(y, r, rng.choice((1, 2)), path, rng) for r in self._ordered[type_]]
            values = [c for c in values if c is not None and not isinstance(c.target, Than)]
            inside = rng.choice(values or [self._anchor(y, path | {y}, rng)])
        elif level < 4:
            inside = self._class(y, up=level - 2, path=path, rng=rng)
        if inside is None and column.relation.functional and forward:
            return None  # "was born in some place" says nothing of a person
        clues = () if inside is None else (inside,)
        return Clue(relation=relation, forward=forward, target=Node(type=type_, clues=clues))

    def _class(self, y: int, *, up: int, path: Closed, rng: random.Random) -> Clue | None:
        """The class of an entity (its country, its genre), or the class of that (`up` 1), as a clue; None where it has
        none."""
        graph = self.graph
        for relation in rng.sample(classes := self._classes[graph.types[graph.type_of[y]]], len(classes)):
            ends = graph.columns[relation].forward.list(y)
            if not ends:
                continue
            end, literal = ends[0], graph.columns[relation].relation.literal
            if up and not literal and (above := self._class(end, up=0, path=path, rng=rng)) is not None:
                return Clue(
                    relation=relation, forward=True, target=Node(type=graph.types[graph.type_of[end]], clues=(above,))
                )
            if literal or end not in path:
                return Clue(relation=relation, forward=True, target=graph.id(end))
        return None

    def _named(self, x: int, level: int) -> Named | None:
        initial = chr(self.graph.initial[x])
        return Named(initial=initial, words=int(self.graph.words[x]) if level == 1 else 0) if initial != "\0" else None

    @staticmethod
    def _same_side(a: Clue | Named, b: Clue | Named) -> bool:
        """Two clues of one relation and direction would read as one, and two about the name as a riddle about
        letters."""
        if isinstance(a, Named) or isinstance(b, Named):
            return isinstance(a, Named) and isinstance(b, Named)
        return (a.relation, a.forward) == (b.relation, b.forward)

    # ---- no clue too many

    def _minimal(self, clues: list[Clue | Named], root: int, shape: Shape, rng: random.Random) -> Node:
        """The node without superfluous clues, those furthest from the level removed first. A clue that is needed among
        more clues is also needed among fewer, so each is tried once."""
        type_ = self.graph.types[self.graph.type_of[root]]
        first = clues[0]
        kept = list(clues)
        for clue in sorted(rng.sample(clues[1:], len(clues) - 1), key=lambda c: -abs(level(c) - shape.level)):
            rest = [c for c in kept if c is not clue]
            if self._alone(type_, rest, root):
                kept = rest
        for i, clue in enumerate(kept):
            deep = depth(Node(type=type_, clues=(clue,))) if clue is first else 0  # the branch stays as deep as it is
            while isinstance(target := inner(clue), Node):
                smaller = (
                    t
                    for t in deletions(target)
                    if (not deep or depth(Node(type=type_, clues=(_led(clue, t),))) == deep)
                    and self._alone(type_, [*kept[:i], _led(clue, t), *kept[i + 1 :]], root)
                )
                lighter = next(smaller, None)
                if lighter is None:
                    break
                clue = kept[i] = _led(clue, lighter)
        return Node(type=type_, clues=tuple(kept))

    def _alone(self, type_: str, clues: list[Clue | Named], root: int) -> bool:
        return next(self.graph.others(Node(type=type_, clues=tuple(clues)), root), None) is None

    def _witnesses(self, node: Node, root: int, wanted: Rows, value: int) -> dict[int, str] | None:
        """For every deletion an entity that fits the remaining clues and has another answer; None if some deletion has
        none."""
        out = {}
        for i, smaller in enumerate(deletions(node)):
            other = next((x for x in self.graph.others(smaller, root) if any(v != value for v in wanted.list(x))), None)
            if other is None:
                return None
            out[i] = self.graph.id(other)
        return out


def _outside(path: Set[int], ends: Sequence[int], rng: random.Random) -> int | None:
    """One of some entities that is not on the path, each as likely; None where there is none."""
    for _ in range(_DRAWS if ends else 0):
        if (end := rng.choice(ends)) not in path:
            return end
    rest = [e for e in ends if e not in path]
    return rng.choice(rest) if rest else None


def _as_bits(flags: np.ndarray) -> int:
    return int.from_bytes(np.packbits(flags).tobytes())


def _complete(
    sets: Sequence[tuple[Clue | Named, int]], everyone: int, alone: int, aim: int, most: int
) -> list[Clue | Named] | None:
    """As few clues as suffice, at most `most`, that only one entity fits and whose mean level rounds to `aim`; none of
    them is superfluous. None where there are none.

    sets: clues with the entities that fit them, as bits; everyone, alone: bits of all entities and of the one.
    """

    def search(at: int, chosen: list[int], left: int, size: int) -> list[int] | None:
        if len(chosen) == size:
            others = (reduce(and_, (sets[j][1] for j in chosen if j != i), everyone) for i in chosen)
            near = left == alone and _rounded(sum(level(sets[i][0]) for i in chosen) / size) == aim
            return chosen if near and alone not in others else None
        for i in range(at, len(sets)) if left != alone else ():
            fewer = left & sets[i][1]
            if fewer != left and (completion := search(i + 1, [*chosen, i], fewer, size)) is not None:
                return completion
        return None

    completion = next((f for size in range(1, most + 1) if (f := search(0, [], everyone, size)) is not None), None)
    return None if completion is None else [sets[i][0] for i in completion]


def _led(clue: Clue | Named, term: Node) -> Clue:
    assert isinstance(clue, Clue)
    return replace(clue, target=replace(clue.target, other=term) if isinstance(clue.target, Than) else term)


def _near(level: int, rng: random.Random) -> int:
    return min(4, max(1, level + rng.choice((-1, 0, 0, 0, 1))))


def depth(term: str | Node) -> int:
    """Edges from a variable to the furthest clue that leads to a term or value. There and back by one relation ("in the
    same category as") counts as one edge."""
    if isinstance(term, str):
        return 0
    ends = (hub(c) or inner(c) for c in term.clues)
    return 1 + max((depth(t) for t in ends if t is not None), default=0)


def level(clue: Clue | Named) -> int:
    """The fuzz level of one clue, from 0 (a constant) to 4, as the operators of `synth.questions.fuzzy` count."""
    if isinstance(clue, Named):
        return 1 if clue.words else NAMED
    target = clue.target
    if isinstance(target, str):
        return 0
    if isinstance(target, Node):
        if not target.clues:
            return 3
        return (
            2 if len(target.clues) == 1 and isinstance(c := target.clues[0], Clue) and isinstance(c.target, str) else 1
        )
    if isinstance(target, Span):
        return _span_level(target.said)
    return 4 if isinstance(target, Third) else THAN if isinstance(target, Than) else NOTHING


def _span_level(text: str) -> int:
    if text.endswith("century"):
        return 3 if text.split()[2] in ("early", "mid", "late") else 4
    if text.startswith("between "):
        low, high = text.removeprefix("between ").split(" and ")
        return 3 if low.strip("0,. milbtron") == high.strip("0,. milbtron") == "1" else 2
    return 2 if text.endswith("0s") else 1


def reached(node: Node, depth_: int) -> int:
    """The fuzz level of a description, 1 to 4: the mean level of its clues but the one that leads to a constant, which is
    as deep as the question."""
    branch = next((c for c in node.clues if depth(Node(type=node.type, clues=(c,))) == depth_), None)
    vague = [level(c) for c in node.clues if c is not branch]
    return _rounded(sum(vague) / len(vague))


def _rounded(mean: float) -> int:
    return min(4, max(1, math.floor(mean + 0.5)))


def fuzz(node: Node) -> float:
    """The mean fuzz level of all clues of a description."""
    levels: list[int] = []

    def walk(node: Node) -> None:
        for clue in node.clues:
            levels.append(level(clue))
            if isinstance(target := inner(clue), Node):
                walk(target)

    walk(node)
    return sum(levels) / len(levels)


def bits(graph: Graph, node: Node, root: int) -> float:
    """The information that vagueness hides in the root's clues about values and entities: log2 of how many entities fit
    the vague clue per entity that fits the exact one."""
    lost = 0.0
    for clue in node.clues:
        if not isinstance(clue, Clue):
            continue
        column = graph.columns[clue.relation]
        if isinstance(clue.target, Span):
            exact = np.searchsorted(column.sorted, column.values[root], "right") - np.searchsorted(
                column.sorted, column.values[root]
            )
            lost += math.log2(max(1.0, graph.estimate(clue)) / max(1, exact))
        elif isinstance(clue.target, Node):
            vague = len(graph.extension(Node(type=node.type, clues=(clue,))))
            ends = [
                e for e in map(int, graph.neighbours(root, clue.relation, clue.forward)) if graph.fits(clue.target, e)
            ]
            lost += math.log2(vague / max(1, min(column.rows(not clue.forward).size(e) for e in ends)))
    return lost
