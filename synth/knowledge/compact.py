"""A knowledge base as columns, for as many facts as there are questions to ask: some 70 bytes a fact, where the objects of
`KB` take 1,400.

`CompactKB` answers as `KB` does, in the same order; entities and facts become objects when they are asked for, and do not know their
source. (`synth.knowledge.postings` has the same facts in an order of its own.)
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Generic, TypeVar, overload

import numpy as np
import pyarrow as pa

from synth.knowledge.arrow_texts import TEXT, ArrowTexts
from synth.knowledge.kb import KB, Entity, Fact, Passage, Relation, _by_key, densities
from synth.knowledge.orders import inverse

_SOME = 65_536  # texts that become a part of a column together
_KEPT = 16_384  # objects that are kept
_NONE = memoryview(b"")

T = TypeVar("T")


class CompactKB(KB):
    """Raises ValueError as `KB` does."""

    def __init__(self, entities: Iterable[Entity], relations: Iterable[Relation], facts: Iterable[Fact]) -> None:
        self.relations = _by_key(relations, "name", "relation")
        self._things = _Things(entities)
        self.entities: Mapping[str, Entity] = self._things  # type: ignore[assignment]
        self._number = {name: i for i, name in enumerate(self.relations)}
        self._names = list(self.relations)
        # A question comes back to the same few.
        self.fact = lru_cache(maxsize=_KEPT)(self._fact)
        self._text_of = lru_cache(maxsize=_KEPT)(self._value_text)
        ids, columns, literals = _Column(), (array("i"), array("h"), array("i")), dict[str, int]()
        n = len(self._things)
        for fact in facts:
            self._check(fact)
            ids.add(fact.id)
            columns[0].append(self._things.place(fact.subject))
            columns[1].append(self._number[fact.relation])
            if fact.object is not None:
                columns[2].append(self._things.place(fact.object))
            else:
                columns[2].append(n + literals.setdefault(fact.literal, len(literals)))  # type: ignore[arg-type]
        self._ids = ids.whole()
        self._literals = ArrowTexts.of(literals)
        self._literal = _Places(self._literals, len(self._literals), self._literals.__getitem__)
        del literals
        self._subject, self._relation, self._value = (np.frombuffer(c, c.typecode) for c in columns)
        self._subject_of, self._value_of = self._subject.data, self._value.data  # for one at a time
        self._by_subject = _Ends(self._subject, self._relation, n)
        self._by_value = _Ends(self._value, self._relation, n + len(self._literals))
        self.facts: Mapping[str, Fact] = _Facts(self)  # type: ignore[assignment]
        self._refuse_several(self._by_subject, "functional")
        self._refuse_several(self._by_value, "inverse_functional")

    def _refuse_several(self, ends: _Ends, flag: str) -> None:
        for name, r in self.relations.items():
            if getattr(r, flag) and (key := ends.twice(self._number[name])) is not None:
                facts = ends.of(key, self._number[name]).tolist()
                self._refuse(self._text_of(key), name, list(map(self.fact, facts)), flag)

    def _fact(self, i: int) -> Fact:
        """The fact with a number, in the order of the input."""
        value = self._value_of[i]
        return Fact(
            id=self._ids[i],
            subject=self._text_of(self._subject_of[i]),
            relation=self._names[self._relation[i]],
            **{"object" if value < len(self._things) else "literal": self._text_of(value)},
        )

    def _value_text(self, value: int) -> str:
        n = len(self._things)
        return self._things.ids[value] if value < n else self._literals[value - n]

    def _numbered(self, value: str, literal: bool) -> int:
        """The number of an entity, or of a literal; -1 for neither."""
        if not literal:
            return self._things.place(value)
        i = self._literal.find(value)
        return i + len(self._things) if i >= 0 else -1

    def _facts(self, value: str, relation: str, forward: bool) -> memoryview:
        """The numbers of the facts of a subject, or of those with a value."""
        r = self.relations.get(relation)
        if r is None or (i := self._numbered(value, r.literal and not forward)) < 0:
            return _NONE
        return (self._by_subject if forward else self._by_value).of(i, self._number[relation])

    def ends(self, value: str, relation: str, forward: bool) -> Iterator[str]:
        other = self._value_of if forward else self._subject_of
        return (self._text_of(other[i]) for i in self._facts(value, relation, forward))

    def n_ends(self, value: str, relation: str, forward: bool) -> int:
        return len(self._facts(value, relation, forward))

    def forward(self, subject: str, relation: str) -> tuple[str, ...]:
        return tuple(self.ends(subject, relation, True))

    def backward(self, relation: str, value: str) -> tuple[str, ...]:
        return tuple(self.ends(value, relation, False))

    def facts_of(self, subject: str, relation: str) -> tuple[Fact, ...]:
        return tuple(map(self.fact, self._facts(subject, relation, True).tolist()))

    def facts_to(self, relation: str, value: str) -> tuple[Fact, ...]:
        return tuple(map(self.fact, self._facts(value, relation, False).tolist()))

    def touching(self, entity: str) -> Iterator[Fact]:
        i = self._things.place(entity)
        both = (ends.all(i).tolist() for ends in (self._by_subject, self._by_value) if i >= 0)
        return map(self.fact, sorted({*chain.from_iterable(both)}))

    def alone(self, entity: str) -> Iterator[tuple[Fact, bool]]:
        if (i := self._things.place(entity)) >= 0:
            for ends, single, forward in self._single:
                yield from ((self.fact(f), forward) for f in ends.all(i) if single[f])

    @cached_property
    def _single(self) -> tuple[tuple[_Ends, memoryview, bool], ...]:
        """Facts by an end of theirs, and of each whether its other end has no other of the relation."""
        ends = (self._by_subject, self._subject), (self._by_value, self._value)
        subject, value = (by.single(keys).data for by, keys in ends)
        return (self._by_subject, value, True), (self._by_value, subject, False)

    def called(self, type: str, name: str) -> list[str]:
        return [self._things.ids[i] for i in self._called.all((type, name))]

    @cached_property
    def _called(self) -> _Places:
        things = self._things
        keys = zip(things.types_of(), things.names, strict=True)
        return _Places(keys, len(things), lambda i: (things.type(i), things.names[i]))

    def pairs(self, relation: str) -> Iterator[tuple[str, str]]:
        for i in self._of(relation):
            yield self._things.ids[int(self._subject[i])], self._text_of(int(self._value[i]))

    def listed(self, relation: str) -> Iterator[str]:
        return (self._text_of(int(self._value[i])) for i in self._of(relation))

    def _of(self, relation: str) -> np.ndarray:
        return np.flatnonzero(self._relation == self._number.get(relation, -1))

    def stated(self) -> Iterator[tuple[str, str, Sequence[Fact]]]:
        order, starts = self._by_subject.groups(self._subject)
        first = order[starts[:-1]]
        for group in np.argsort(first):  # no array of all objects: they are made as they are asked for
            facts = [self._fact(i) for i in order[starts[group] : starts[group + 1]].tolist()]
            yield facts[0].subject, facts[0].relation, facts

    def n_facts(self) -> dict[str, int]:
        return dict(zip(self._names, np.bincount(self._relation, minlength=len(self._names)).tolist(), strict=True))

    def density(self, *, deepest: int = 4, least: float = 0.1) -> dict[str, object]:
        n = len(self._things)
        objects = np.where(self._value < n, self._value, -1)
        forward, backward = self._by_subject.single(self._subject), self._by_value.single(self._value)
        return densities(n, self._subject, objects, forward, backward & (objects >= 0), deepest=deepest, least=least)

    def _sorted(self, texts: Iterable[str]) -> Iterable[str]:
        column = _Column()
        for text in texts:
            column.add(text)
        whole = column.whole()
        return whole.take(whole.ranked())

    def mutual(self, relation: str) -> bool:
        here = self._of(relation)
        subject, value = self._subject[here].astype(np.int64), self._value[here].astype(np.int64)
        n = len(self._things) + len(self._literals)
        return bool(np.isin(value * n + subject, subject * n + value).all())

    def askable(self, relation: str, forward: bool) -> tuple[Sequence[str], float]:
        here = self._of(relation)
        if not len(here):
            return (), 0.0
        mine, other = (self._subject, self._value) if forward else (self._value, self._subject)
        different = np.unique(mine[here])
        most = int(np.unique(other[here], return_counts=True)[1].max())
        if different[-1] >= len(self._things):
            return sorted(map(self._text_of, different.tolist())), most / len(here)
        different = different[np.argsort(self._rank[different])]
        return _Some(self._things.ids, different), most / len(here)

    @cached_property
    def _rank(self) -> np.ndarray:
        """[entities] the place of each in the order of their ids."""
        return inverse(self._things.ids.ranked()).astype(np.int32)

    def text(self, value: str) -> str:
        i = self._things.place(value)
        return value if i < 0 else self._things.names[i]


class Columns(Sequence[T], Generic[T]):
    """Values of a dataclass, whose fields are texts and tuples of texts, as columns; each is made when it is read."""

    def __init__(
        self, cls: Callable[..., T], values: Iterable[T], names: Sequence[str], lists: Sequence[str] = ()
    ) -> None:
        self._cls, self._lists = cls, set(lists)
        columns = {name: _Column(pa.large_list(TEXT) if name in self._lists else TEXT) for name in (*names, *lists)}
        self._n = 0
        for value in values:
            for name, column in columns.items():
                column.add(getattr(value, name))
            self._n += 1
        self._columns = {name: column.whole() for name, column in columns.items()}

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, i: int) -> T: ...
    @overload
    def __getitem__(self, i: slice) -> list[T]: ...
    def __getitem__(self, i: int | slice) -> T | list[T]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(self._n))]
        if not -self._n <= i < self._n:
            raise IndexError(f"row {i} of {self._n}")
        i = int(i) % self._n
        return self._cls(**{k: tuple(c[i]) if k in self._lists else c[i] for k, c in self._columns.items()})

    def column(self, name: str) -> ArrowTexts:
        return self._columns[name]


def passages_of(passages: Iterable[Passage]) -> Columns[Passage]:
    """Passages as columns."""
    return Columns(Passage, passages, ("id", "entity", "title", "text"), ("facts",))


class _Column:
    """A column of Arrow that grows."""

    def __init__(self, kind: pa.DataType = TEXT) -> None:
        self._kind, self._some, self._parts = kind, [], []

    def add(self, value: Any) -> None:
        self._some.append(value)
        if len(self._some) == _SOME:
            self._parts.append(pa.array(self._some, self._kind))
            self._some = []

    def whole(self) -> ArrowTexts:
        return ArrowTexts(pa.concat_arrays([*self._parts, pa.array(self._some, self._kind)]))


class _Places:
    """Where keys are: their hashes, sorted. 12 bytes a key. at: place -> its key."""

    def __init__(self, keys: Iterable[Hashable], n: int, at: Callable[[int], Hashable]) -> None:
        hashes = np.fromiter(map(hash, keys), np.int64, n)
        self._order = np.argsort(hashes, kind="stable").astype(np.int32)
        self._hashes, self._at = hashes[self._order], at
        self.find = lru_cache(maxsize=_KEPT)(self._find)

    def all(self, key: Hashable) -> Iterator[int]:
        """The places of a key, rising."""
        wanted = hash(key)
        for i in range(int(self._hashes.searchsorted(wanted)), len(self._hashes)):
            if self._hashes[i] != wanted:
                break
            if self._at(place := int(self._order[i])) == key:
                yield place

    def _find(self, key: Hashable) -> int:
        """The first place of a key; -1 for none."""
        return next(self.all(key), -1)

    def twice(self) -> Hashable | None:
        """A key with two places, if there is one."""
        for i in np.flatnonzero(self._hashes[1:] == self._hashes[:-1]).tolist():
            key = self._at(int(self._order[i]))
            if len(list(self.all(key))) > 1:
                return key
        return None


class _Ends:
    """Facts by their subjects, or by their values, and by their relations: of each in the order of the input."""

    def __init__(self, keys: np.ndarray, relations: np.ndarray, n: int) -> None:
        order = np.lexsort((relations, keys)).astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=n))]).astype(np.int32)
        # a thing has few facts: Python finds them in less time than numpy takes to begin
        self._order, self._relations, self._starts = order.data, relations[order].data, starts.data

    def all(self, key: int) -> memoryview:
        return self._order[self._starts[key] : self._starts[key + 1]]

    def of(self, key: int, relation: int) -> memoryview:
        last = self._starts[key + 1]
        first = bisect_left(self._relations, relation, self._starts[key], last)
        return self._order[first : bisect_right(self._relations, relation, first, last)]

    def groups(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(the numbers of the facts, a key and a relation after the other; [groups + 1] where each of these begins). keys: as they
        were given."""
        order = np.asarray(self._order)
        keys, relations = keys[order], np.asarray(self._relations)
        new = np.flatnonzero((keys[1:] != keys[:-1]) | (relations[1:] != relations[:-1])) + 1
        return order, np.concatenate([[0], new, [len(order)]]) if len(order) else np.zeros(1, np.int64)

    def single(self, keys: np.ndarray) -> np.ndarray:
        """[facts] bool, whether a fact is the only one of its key and relation."""
        order, starts = self.groups(keys)
        sizes, out = np.diff(starts), np.zeros(len(order), bool)
        out[order] = np.repeat(sizes == 1, sizes)
        return out

    def twice(self, relation: int) -> int | None:
        """A key that has several facts of a relation, if there is one."""
        starts = np.asarray(self._starts)
        keys = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[np.asarray(self._relations) == relation]
        again = keys[1:][keys[1:] == keys[:-1]]
        return int(again[0]) if len(again) else None


class _Things(Mapping[str, Entity]):
    """Entities by their ids."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        ids, names, types = _Column(), _Column(), array("h")
        number: dict[str, int] = {}
        self._aliases: dict[int, tuple[str, ...]] = {}
        for e in entities:
            if e.aliases:
                self._aliases[len(types)] = e.aliases
            ids.add(e.id)
            names.add(e.name)
            types.append(number.setdefault(e.type, len(number)))
        self.ids, self.names, self._types, self._kinds = ids.whole(), names.whole(), types, list(number)
        self._places = _Places(self.ids, len(self.ids), self.ids.__getitem__)
        if (twice := self._places.twice()) is not None:
            raise ValueError(f"the entity {twice!r} is given twice: keep one")
        self.place = self._places.find
        self.at = lru_cache(maxsize=_KEPT)(self._at)

    def type(self, i: int) -> str:
        return self._kinds[self._types[i]]

    def types_of(self) -> Iterator[str]:
        return (self._kinds[t] for t in self._types)

    def _at(self, i: int) -> Entity:
        return Entity(id=self.ids[i], name=self.names[i], type=self.type(i), aliases=self._aliases.get(i, ()))

    def __getitem__(self, key: str) -> Entity:
        if (i := self.place(key)) < 0:
            raise KeyError(key)
        return self.at(i)

    def get(self, key: str, default: Any = None) -> Any:
        return default if (i := self.place(key)) < 0 else self.at(i)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.place(key) >= 0

    def __iter__(self) -> Iterator[str]:
        return iter(self.ids)

    def __len__(self) -> int:
        return len(self.ids)

    def values(self) -> Any:
        return map(self._at, range(len(self)))


class _Facts(Mapping[str, Fact]):
    """Facts by their ids."""

    def __init__(self, kb: CompactKB) -> None:
        self._kb, self._ids = kb, kb._ids
        if (twice := self._places.twice()) is not None:
            raise ValueError(f"the fact {twice!r} is given twice: keep one")
        del self._places  # most facts are never asked for by their ids

    @cached_property
    def _places(self) -> _Places:
        return _Places(self._ids, len(self._ids), self._ids.__getitem__)

    def __getitem__(self, key: str) -> Fact:
        if (i := self._places.find(key)) < 0:
            raise KeyError(key)
        return self._kb.fact(i)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def values(self) -> Any:
        return map(self._kb._fact, range(len(self)))


class _Some(Sequence[str]):
    """Some texts of a column."""

    def __init__(self, texts: ArrowTexts, places: np.ndarray) -> None:
        self._texts, self._places = texts, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, i: Any) -> Any:
        return self._texts[int(self._places[i])]

    def __iter__(self) -> Iterator[str]:
        parts = range(0, len(self), _SOME)
        return chain.from_iterable(self._texts.take(self._places[at : at + _SOME]) for at in parts)
