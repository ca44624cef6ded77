"""Names: the names of a graph's entities, the entities of a name, and the facts behind an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from synth.knowledge.kb import KB, Fact, entity_id
from synth.questions.fuzzy.graph import Graph
from synth.questions.pattern import Clue, Node, Pattern, inner
from synth.verify.exact import normalise


class Lexicon:
    """The names of one graph; `aliases` (entity id -> further names) are those that an answer may use."""

    def __init__(self, graph: Graph, aliases: Mapping[str, Sequence[str]] | None = None) -> None:
        self.graph, self.aliases = graph, dict(aliases or {})
        self._name = lru_cache(maxsize=1 << 16)(lambda value: graph.postings.text(graph.end(value)))
        self._bearers = lru_cache(maxsize=1 << 16)(self._bear)
        self._other: dict[tuple[str, str], list[str]] = {}  # of entities whose id is not "type:name"
        self._bearing: Counter[str] = Counter()  # of the aliases alone: the names of a million entities are large
        wanted = {normalise(a) for names in self.aliases.values() for a in names}
        p = graph.postings
        for i in range(graph.n):
            name, id_ = p.names[i], p.ids[i]
            type_ = graph.types[graph.type_of[i]]
            if id_ != entity_id(type_, name):
                self._other.setdefault((type_, name), []).append(id_)
            if wanted:
                self._bearing.update({normalise(n) for n in (name, *self.aliases.get(id_, ()))} & wanted)

    @staticmethod
    def of(kb: KB, graph: Graph) -> Lexicon:
        """The names of a knowledge base in memory."""
        return Lexicon(graph, {e.id: e.aliases for e in kb.entities.values() if e.aliases})

    def name(self, value: str) -> str:
        """The name of an entity id; a literal is its own text."""
        return self._name(value)

    def names(self, value: str) -> tuple[str, ...]:
        """All names of a value, the first that of `name`."""
        return (self.name(value), *self.aliases.get(value, ()))

    def find(self, where: str, text: str) -> Sequence[str]:
        """The entity ids of a type `where` with a name; or the text itself, if it is a literal of the relation
        `where`."""
        column = self.graph.columns.get(where)
        if column is None or not column.relation.literal:
            return self._bearers(where, text)
        number = self.graph.postings.literal(text)
        return (text,) if number >= 0 and column.backward.size(number) else ()

    def known(self, type_: str, text: str) -> bool:
        """Whether an entity of a type bears a name."""
        return bool(self._bearers(type_, text))

    def says(self, relation: str, text: str) -> bool:
        """Whether a text is a value of a relation of texts."""
        column = self.graph.columns[relation]
        return column.relation.literal and bool(self.find(relation, text))

    def _bear(self, type_: str, text: str) -> Sequence[str]:
        """The ids of the entities of a type with a name, rising."""
        p, one = self.graph.postings, entity_id(type_, text)
        i = p.ids.find(one)
        own = i >= 0 and p.names[i] == text and self.graph.types[self.graph.type_of[i]] == type_
        return sorted([*([one] if own else []), *self._other.get((type_, text), ())])

    def answers(self, value: str) -> list[str]:
        """The aliases of an answer that no other entity has."""
        return [a for a in self.aliases.get(value, ()) if self._bearing[normalise(a)] == 1]


def support(graph: Graph, pattern: Pattern, root: str, answer: str) -> list[Fact]:
    """The facts that an answer rests on, the asked one last: of every clue all that make it true of the root."""
    out: dict[str, Fact] = {}

    def fact(x: str, relation: str, y: str, forward: bool) -> None:
        literal = forward and graph.columns[relation].relation.literal
        invented = Fact.make(x if forward else y, relation, **{"literal" if literal else "object": y if forward else x})
        out[invented.id] = invented

    def walk(x: int, node: Node) -> None:
        for clue in node.clues:
            if not isinstance(clue, Clue):
                continue
            term = clue.target
            for end in map(int, graph.neighbours(x, clue.relation, clue.forward)):
                if isinstance(term, str) and end != graph.end(term):
                    continue
                if isinstance(term, Node):
                    if not graph.fits(term, end):
                        continue
                    walk(end, term)
                fact(graph.id(x), clue.relation, graph.id(end), clue.forward)
            if term is not (other := inner(clue)) and other is not None:  # a comparison rests on the other's value too
                for y in [graph.end(other)] if isinstance(other, str) else map(int, graph.extension(other)):
                    if isinstance(other, Node):
                        walk(y, other)
                    for end in map(int, graph.neighbours(y, clue.relation, True)):
                        fact(graph.id(y), clue.relation, graph.id(end), True)

    assert isinstance(pattern.root, Node)
    walk(graph.end(root), pattern.root)
    fact(root, pattern.relation, answer, pattern.forward)
    return list(out.values())


def hidden(facts: Sequence[Fact], constants: Sequence[str]) -> Iterator[str]:
    """The entities of the facts that a question does not name."""
    seen = set(constants)
    for f in facts:
        for x in (f.subject, f.object):
            if x is not None and x not in seen:
                seen.add(x)
                yield x
