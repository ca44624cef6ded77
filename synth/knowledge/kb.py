"""A knowledge base: entities, relations with their wording, facts, and the short passages that state them.

The world is closed: anything the facts do not state is false. A relation has all its wording (passage, question, search
query), so that passages and questions cannot diverge. `KB` answers both directions from memory, and `KB.sqlite` writes
the same facts as tables, so that another program can prove an answer by SQL.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property

import numpy as np

from synth.types import digest

BLANK = re.compile(r"\{(x|y|label|domain)\}")
LITERALS = ("number", "string", "year", "date")  # ranges whose values are text, not entities


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A thing with a name. `id` is "type:name" (`Entity.make`); `aliases` are other names that an answer may use."""

    id: str
    name: str
    type: str
    aliases: tuple[str, ...] = ()
    source: str = ""

    @staticmethod
    def make(type: str, name: str, *, aliases: Sequence[str] = (), source: str = "") -> Entity:
        return Entity(id=entity_id(type, name), name=name, type=type, aliases=tuple(aliases), source=source)


def entity_id(type: str, name: str) -> str:
    """The id of an entity: within a type a name is unique; a country and a city may share a name."""
    return f"{type}:{name}"


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A kind of fact, with all its wording.

    domain               entity type of its subjects
    range                entity type of its objects, or "number", "string", "year", "date" (written 1789-07-14)
    functional           a subject has at most one object
    inverse_functional   an object has at most one subject
    complete             every true fact is listed, so that absence is a fact too
    label                the words that name it: "capital", "population rank"
    passage, forward, inverse
                         templates over {x} (subject), {y} (object), {label}, {domain}: a sentence, a noun phrase for
                         the object given the subject, and a noun phrase for the subject given the object
    """

    name: str
    domain: str
    range: str
    functional: bool = False
    inverse_functional: bool = False
    complete: bool = False
    label: str
    passage: str = "The {label} of {x} is {y}."
    forward: str = "the {label} of {x}"
    inverse: str = "the {domain} whose {label} is {y}"

    @property
    def literal(self) -> bool:
        """Whether its objects are values rather than entities."""
        return self.range in LITERALS

    def _fill(self, template: str, x: str = "", y: str = "") -> str:
        words = {"x": x, "y": y, "label": self.label, "domain": self.domain.replace("_", " ")}
        return BLANK.sub(lambda blank: words[blank[1]], template)  # in one pass, because a name may contain braces

    def sentence(self, x: str, ys: Sequence[str]) -> str:
        """The passage that states the facts: "The capital of Norvia is Zelton.", several objects as "A, B and C"."""
        joined = ys[0] if len(ys) == 1 else f"{', '.join(ys[:-1])} and {ys[-1]}"
        text = self._fill(self.passage, x, joined)
        return text[:1].upper() + text[1:]

    def ask(self, x: str) -> str:
        """A noun phrase for the object: "the capital of Norvia"."""
        return self._fill(self.forward, x=x)

    def ask_back(self, y: str) -> str:
        """A noun phrase for the subject: "the country whose capital is Zelton"."""
        return self._fill(self.inverse, y=y)

    def query(self, x: str) -> str:
        """The search query that finds the object: "capital of Norvia"."""
        return f"{self.label} of {x}"

    def query_back(self, y: str) -> str:
        """The search query that finds the subject: "country with capital Zelton"."""
        return f"{self.domain.replace('_', ' ')} with {self.label} {y}"


@dataclass(frozen=True, kw_only=True)
class Fact:
    """subject (entity id), relation (name), and either `object` (entity id) or `literal` (text).

    source: file and line; span: the text there.
    """

    id: str
    subject: str
    relation: str
    object: str | None = None
    literal: str | None = None
    source: str = ""
    span: str = ""

    @staticmethod
    def make(
        subject: str,
        relation: str,
        *,
        object: str | None = None,
        literal: str | None = None,
        source: str = "",
        span: str = "",
    ) -> Fact:
        return Fact(
            id=digest(subject, relation, object, literal)[:16],
            subject=subject,
            relation=relation,
            object=object,
            literal=literal,
            source=source,
            span=span,
        )

    @property
    def value(self) -> str:
        """The object's id, or the literal."""
        return self.object if self.object is not None else self.literal  # type: ignore[return-value]


@dataclass(frozen=True, kw_only=True)
class Passage:
    """A short text about one entity, as the search tool returns it: title (its name), one sentence, and the ids of the
    facts it states."""

    id: str
    entity: str
    title: str
    text: str
    facts: tuple[str, ...]


class KB:
    """Entities, relations and facts, checked and indexed. Iteration order is that of the input; nothing is changed
    after construction.

    Raises ValueError for a repeated id, a fact about an unknown entity or relation, an object of the wrong type, or two
    objects under a functional relation: readers of sources quarantine such rows first.
    """

    def __init__(self, entities: Iterable[Entity], relations: Iterable[Relation], facts: Iterable[Fact]) -> None:
        self.entities = _by_key(entities, "id", "entity")
        self.relations = _by_key(relations, "name", "relation")
        self.facts = _by_key(facts, "id", "fact")
        self._forward: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        self._backward: dict[tuple[str, str], list[Fact]] = defaultdict(list)
        for fact in self.facts.values():
            self._check(fact)
            self._forward[fact.subject, fact.relation].append(fact)
            self._backward[fact.relation, fact.value].append(fact)
        for (subject, name), linked in self._forward.items():
            if len(linked) > 1 and self.relations[name].functional:
                self._refuse(subject, name, linked, "functional")
        for (name, value), linked in self._backward.items():
            if len(linked) > 1 and self.relations[name].inverse_functional:
                self._refuse(value, name, linked, "inverse_functional")

    @staticmethod
    def _refuse(value: str, relation: str, linked: Sequence[Fact], flag: str) -> None:
        """Raises for several facts of a relation that allows one."""
        forward = flag == "functional"
        first, second = ((f.value if forward else f.subject) for f in linked[:2])
        raise ValueError(
            f"{value!r} has {len(linked)} {'objects' if forward else 'subjects'} under the {flag.replace('_', ' ')} relation "
            f"{relation!r} ({first!r}, {second!r}): keep one, or declare it {flag}: false"
        )

    def _check(self, fact: Fact) -> None:
        relation, subject = self.relations.get(fact.relation), self.entities.get(fact.subject)
        if relation is None or subject is None:
            raise ValueError(
                f"the fact {fact.subject!r} {fact.relation!r} {fact.value!r} names an unknown "
                f"{'relation' if relation is None else 'subject'}: add it, or leave the fact out"
            )
        if (fact.object is None) == (fact.literal is None) or (fact.literal is None) == relation.literal:
            raise ValueError(
                f"the fact {fact.subject!r} {fact.relation!r} must have {'a literal' if relation.literal else 'an object'} alone: "
                f"the range of {fact.relation!r} is {relation.range!r}"
            )
        thing = None if fact.object is None else self.entities.get(fact.object)
        if not relation.literal and (thing is None or thing.type != relation.range):
            raise ValueError(
                f"the object {fact.object!r} of {fact.subject!r} {fact.relation!r} is not a known {relation.range!r}: add the "
                "entity, or change the range of the relation"
            )
        if subject.type != relation.domain:
            raise ValueError(
                f"the subject {fact.subject!r} of {fact.relation!r} is a {subject.type!r}, but the domain of the relation is "
                f"{relation.domain!r}: fix one of the two"
            )

    def forward(self, subject: str, relation: str) -> tuple[str, ...]:
        """The objects (entity ids or literals) of a subject under a relation, () for none."""
        return tuple(f.value for f in self._forward.get((subject, relation), ()))

    def backward(self, relation: str, value: str) -> tuple[str, ...]:
        """The subjects that have the object (entity id or literal) under a relation, () for none."""
        return tuple(f.subject for f in self._backward.get((relation, value), ()))

    def ends(self, value: str, relation: str, forward: bool) -> Iterator[str]:
        """`forward` or `backward` of a value, one after the other: there may be many."""
        if forward:
            return (f.value for f in self._forward.get((value, relation), ()))
        return (f.subject for f in self._backward.get((relation, value), ()))

    def n_ends(self, value: str, relation: str, forward: bool) -> int:
        """How many `ends` gives."""
        facts = self._forward.get((value, relation), ()) if forward else self._backward.get((relation, value), ())
        return len(facts)

    def facts_of(self, subject: str, relation: str) -> tuple[Fact, ...]:
        """The facts behind `forward`."""
        return tuple(self._forward.get((subject, relation), ()))

    def facts_to(self, relation: str, value: str) -> tuple[Fact, ...]:
        """The facts behind `backward`."""
        return tuple(self._backward.get((relation, value), ()))

    def touching(self, entity: str) -> Iterator[Fact]:
        """The facts of which an entity is the subject or the object, in the order of the input."""
        return iter(self._touching.get(entity, ()))

    @cached_property
    def _touching(self) -> dict[str, list[Fact]]:
        touching: dict[str, list[Fact]] = defaultdict(list)
        for f in self.facts.values():
            for entity in {f.subject, f.object} - {None}:
                touching[entity].append(f)  # type: ignore[index]
        return touching

    def alone(self, entity: str) -> Iterator[tuple[Fact, bool]]:
        """(fact, whether the entity is its subject) of the facts about an entity that say what is true of it alone: of the other
        end there is no other fact of the relation. In any order."""
        for f in self.touching(entity):
            if f.subject == entity and self.n_ends(f.value, f.relation, False) == 1:
                yield f, True
            if f.object == entity and self.n_ends(f.subject, f.relation, True) == 1:
                yield f, False

    def called(self, type: str, name: str) -> list[str]:
        """The ids of the entities of a type with a name."""
        return self._called.get((type, name), [])

    @cached_property
    def _called(self) -> dict[tuple[str, str], list[str]]:
        return by_name(self.entities.values())

    def mutual(self, relation: str) -> bool:
        """Whether every fact of a relation is stated the other way round too."""
        return both_ways(self.pairs(relation))

    def askable(self, relation: str, forward: bool) -> tuple[Sequence[str], float]:
        """The different subjects of a relation (not `forward`: its objects), sorted, and the share of its facts that the
        most frequent object (subject) has; 0 without facts."""
        pairs = list(self.pairs(relation))
        given = Counter(y if forward else x for x, y in pairs)
        return sorted({x if forward else y for x, y in pairs}), max(given.values()) / len(pairs) if pairs else 0.0

    def stated(self) -> Iterator[tuple[str, str, Sequence[Fact]]]:
        """(subject, relation, its facts) in the order of the first of these."""
        return ((subject, relation, facts) for (subject, relation), facts in self._forward.items())

    def n_facts(self) -> dict[str, int]:
        """Relation -> how many facts it has, of all relations."""
        n = Counter(f.relation for f in self.facts.values())
        return {name: n[name] for name in self.relations}

    def listed(self, relation: str) -> Iterator[str]:
        """The objects (entity ids or literals) of all facts of a relation."""
        return (f.value for f in self.facts.values() if f.relation == relation)

    def pairs(self, relation: str) -> Iterator[tuple[str, str]]:
        """(subject, value) of all facts of a relation."""
        return ((f.subject, f.value) for f in self.facts.values() if f.relation == relation)

    def text(self, value: str) -> str:
        """The name of an entity id; a literal is its own text."""
        entity = self.entities.get(value)
        return value if entity is None else entity.name

    def digest(self) -> str:
        """64 hex digits of the content: independent of the order and the source of the entities, relations and
        facts."""
        total = hashlib.sha256()
        for line in self._sorted(json.dumps(row, ensure_ascii=False) for row in self._rows()):
            total.update(line.encode() + b"\n")
        return total.hexdigest()

    def _rows(self) -> Iterator[list]:
        yield from (["entity", e.id, e.name, e.type, *sorted(e.aliases)] for e in self.entities.values())
        yield from (["relation", *map(str, astuple(r))] for r in self.relations.values())
        yield from (["fact", f.subject, f.relation, f.object is None, f.value] for f in self.facts.values())

    def _sorted(self, texts: Iterable[str]) -> Iterable[str]:
        return sorted(texts)

    def sqlite(self, connection: sqlite3.Connection) -> None:
        """Write the tables entity, relation and fact (columns as the types; aliases as JSON), indexed in both
        directions."""
        for table, cls, values in (
            ("entity", Entity, self.entities),
            ("relation", Relation, self.relations),
            ("fact", Fact, self.facts),
        ):
            names = [f.name for f in fields(cls)]
            columns = ", ".join(
                f'"{n}" {"INTEGER" if f.type == "bool" else "TEXT"}{" PRIMARY KEY" if i == 0 else ""}'
                for i, (n, f) in enumerate(zip(names, fields(cls)))
            )
            connection.execute(f"CREATE TABLE {table} ({columns}) WITHOUT ROWID")
            own = (
                [
                    json.dumps(v, ensure_ascii=False) if isinstance(v, tuple) else v
                    for v in (getattr(value, n) for n in names)
                ]
                for value in values.values()
            )
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", own)
        for name, columns in (
            ("forward", "(subject, relation)"),
            ("to_object", "(relation, object) WHERE object IS NOT NULL"),
            ("to_literal", "(relation, literal) WHERE literal IS NOT NULL"),
        ):
            connection.execute(f"CREATE INDEX fact_{name} ON fact {columns}")

    def density(self, *, deepest: int = 4, least: float = 0.1) -> dict[str, object]:
        """How much there is to chain.

        A *step* leads from an entity to the only object of a relation, or back to its only subject; its target may be a
        literal, where a walk ends. `walks` gives, for each number of hops, the share of entities from which a walk of
        that many steps starts that never goes back over the fact it came by; `depth` is the largest number of hops
        whose share reaches `least`.
        """
        place = {e: i for i, e in enumerate(self.entities)}
        ends = [
            (
                place[f.subject],
                -1 if f.object is None else place[f.object],
                len(self._forward[f.subject, f.relation]) == 1,
                f.object is not None and len(self._backward[f.relation, f.object]) == 1,
            )
            for f in self.facts.values()
        ]
        columns = np.array(ends, np.int64).reshape(-1, 4).T
        forward, backward = columns[2].astype(bool), columns[3].astype(bool)
        return densities(len(place), columns[0], columns[1], forward, backward, deepest=deepest, least=least)


def densities(
    entities: int,
    subject: np.ndarray,
    object: np.ndarray,
    forward: np.ndarray,
    backward: np.ndarray,
    *,
    deepest: int = 4,
    least: float = 0.1,
) -> dict[str, object]:
    """`KB.density` of facts as arrays: [facts] int, the numbers of their entities (object -1: a literal); [facts] bool,
    whether one can step from the subject to the object, and back. `entities`: how many there are."""
    itself = subject == object
    ahead, back = forward.copy(), backward & ~(forward & itself)  # steps with which a walk can go on
    size = int(max(subject.max(initial=-1), object.max(initial=-1))) + 1
    walks: dict[int, float] = {}
    for hops in range(1, deepest + 1):
        begin = np.bincount(subject[ahead], minlength=size).astype(np.int32)  # of each fact a number is looked up
        begin += np.bincount(object[back], minlength=size).astype(np.int32)
        walks[hops] = round(int(np.count_nonzero(begin)) / max(1, entities), 4)
        after = forward & (object >= 0) & (begin[object] > np.where(itself, ahead, back)) if size else ahead
        back = backward & ~(forward & itself) & (begin[subject] > np.where(itself, back, ahead)) if size else back
        ahead = after
    edges = int((object >= 0).sum())
    return {
        "entities": entities,
        "facts": len(subject),
        "edges": edges,
        "edges_per_entity": round(edges / max(1, entities), 3),
        "walks": walks,
        "depth": max((h for h, share in walks.items() if share >= least), default=0),
    }


def _by_key(values: Iterable, key: str, what: str) -> dict:
    out: dict = {}
    for value in values:
        name = getattr(value, key)
        if name in out:
            raise ValueError(f"the {what} {name!r} is given twice: keep one")
        out[name] = value
    return out


def by_name(entities: Iterable[Entity]) -> dict[tuple[str, str], list[str]]:
    """(type, name) -> the ids of the entities that are called so."""
    called: dict[tuple[str, str], list[str]] = defaultdict(list)
    for e in entities:
        called[e.type, e.name].append(e.id)
    return called


def both_ways(pairs: Iterable[tuple[str, str]]) -> bool:
    """Whether each pair is there the other way round too."""
    known = set(pairs)
    return all((y, x) in known for x, y in known)


def merge(parts: Sequence[KB]) -> KB:
    """Merges several knowledge bases. The first mention of an entity or fact is kept (aliases are united); a relation
    in several keeps the first wording and the guarantees that all give. Raises ValueError if domain or range of a
    relation differ."""
    entities: dict[str, Entity] = {}
    relations: dict[str, Relation] = {}
    facts: dict[str, Fact] = {}
    for part in parts:
        for e in part.entities.values():
            known = entities.setdefault(e.id, e)
            entities[e.id] = replace(known, aliases=tuple(dict.fromkeys(known.aliases + e.aliases)))
        for r in part.relations.values():
            known_r = relations.setdefault(r.name, r)
            if (known_r.domain, known_r.range) != (r.domain, r.range):
                raise ValueError(
                    f"the relation {r.name!r} leads from {known_r.domain!r} to {known_r.range!r} in one source and from {r.domain!r} "
                    f"to {r.range!r} in another: rename one of them"
                )
            relations[r.name] = replace(
                known_r,
                **{
                    flag: getattr(known_r, flag) and getattr(r, flag)
                    for flag in ("functional", "inverse_functional", "complete")
                },
            )
        for f in part.facts.values():
            facts.setdefault(f.id, f)
    return KB(entities.values(), relations.values(), facts.values())


def passages(kb: KB, *, objects: int = 4) -> list[Passage]:
    """`each_passage`, all of them."""
    return list(each_passage(kb, objects=objects))


def each_passage(kb: KB, *, objects: int = 4) -> Iterator[Passage]:
    """One passage for each subject and relation, in the order of the facts; more than `objects` objects continue in a
    further passage."""
    for subject, name, linked in kb.stated():
        for start in range(0, len(linked), objects):
            some = linked[start : start + objects]
            text = kb.relations[name].sentence(kb.text(subject), [kb.text(f.value) for f in some])
            ids = tuple(f.id for f in some)
            yield Passage(id=digest("passage", *ids)[:16], entity=subject, title=kb.text(subject), text=text, facts=ids)
