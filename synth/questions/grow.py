"""Growing a description: clues are added until the postings of the KB give one entity alone, and no more of them than
that."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from synth.knowledge.kb import KB, Fact
from synth.questions.pattern import Clue, Node
from synth.questions.wording import Wording

MOST_CANDIDATES = 4  # of the first of two clues: what one passage lists
_KEPT = 4096  # entities whose clues are kept


class Grower:
    """Describes entities of one KB by clues that an oracle can follow with a search tool.

    two_clues      share of the descriptions of two searches that are two clues about names instead of a chain, where
                   there are two
    closed_world   take every relation as completely listed. By default a clue counts only where the KB says that no
                   further entity can satisfy it: its relation is complete, or functional in the direction of the clue
                   (that one mountain in Guyana is listed does not make "the mountain in Guyana" unique)
    """

    def __init__(self, kb: KB, wording: Wording, *, two_clues: float, closed_world: bool) -> None:
        self.kb, self.wording, self.two_clues, self.closed_world = kb, wording, two_clues, closed_world
        # what a root was found describable by, it is described by next
        self._ways = lru_cache(maxsize=_KEPT)(self._ways_of)

    def _ways_of(self, entity: str) -> dict[tuple[str, bool], list[tuple[Clue, Fact]]]:
        """(relation, direction) -> the clues about an entity and their facts, in the order of the knowledge base."""
        ways: dict[tuple[str, bool], list[tuple[Clue, Fact]]] = {}
        for f in self.kb.touching(entity):
            if f.subject == entity and f.relation not in self.wording.symmetric:
                ways.setdefault((f.relation, True), []).append((_clue(f, True), f))
            if f.object == entity:
                ways.setdefault((f.relation, False), []).append((_clue(f, False), f))
        return ways

    def describe(
        self, entity: str, searches: int, rng: random.Random, *, avoid: set[str], path: set[str]
    ) -> Node | None:
        """A node of which `entity` is the only instance and which an oracle resolves in `searches` searches; None where
        there is none.

        `avoid` are fact ids that the question may not use, `path` entities that it may not come back to.
        """
        clues = list(self._clues(entity, avoid, path, rng))
        pair = self._pair(entity, [c for c, _ in clues]) if searches == 2 and self.two_clues > 0 else None
        if pair is not None and rng.random() < self.two_clues:
            return pair
        for clue, fact in clues:
            if not self._alone(clue):
                continue
            if searches == 1:
                return Node(type=self.kb.entities[entity].type, clues=(clue,))
            if (other := self._leads_to(clue)) is not None:
                inner = self.describe(other, searches - 1, rng, avoid=avoid | {fact.id}, path=path | {other})
                if inner is not None:
                    return Node(
                        type=self.kb.entities[entity].type,
                        clues=(Clue(relation=clue.relation, forward=clue.forward, target=inner),),
                    )
        return pair

    def describable(self, entity: str, searches: int, *, avoid: set[str], path: set[str]) -> bool:
        """Whether `describe` gives a node, in whatever order it goes through the clues."""
        for fact, forward in self.kb.alone(entity):
            clue = _clue(fact, forward)
            if forward and fact.relation in self.wording.symmetric or not self.sound(clue):
                continue
            if fact.id in avoid or clue.target in path:
                continue
            if searches == 1:
                return True
            other = self._leads_to(clue)
            if other is not None and self.describable(
                other, searches - 1, avoid=avoid | {fact.id}, path=path | {other}
            ):
                return True
        if searches != 2 or not self.two_clues:
            return False
        return self._pair(entity, [c for c, _ in self._clues(entity, avoid, path)]) is not None

    def _clues(
        self, entity: str, avoid: set[str], path: set[str], rng: random.Random | None = None
    ) -> Iterator[tuple[Clue, Fact]]:
        """The clues about an entity and their facts; in the order that `rng` draws."""
        ways = list(self._ways(entity).values())
        if rng is not None:
            rng.shuffle(ways)  # a way = relation and direction: each is as likely, however many facts it has
        for facts in ways:
            for clue, f in facts if rng is None else rng.sample(facts, len(facts)):
                if f.id not in avoid and clue.target not in path:
                    yield clue, f

    def sound(self, clue: Clue) -> bool:
        """Whether the KB vouches that no entity beyond those listed satisfies a clue."""
        r = self.kb.relations[clue.relation]
        return self.closed_world or r.complete or (r.inverse_functional if clue.forward else r.functional)

    def _alone(self, clue: Clue) -> bool:
        """Whether one entity alone satisfies a clue."""
        return self.sound(clue) and self._n_candidates(clue) == 1

    def _leads_to(self, clue: Clue) -> str | None:
        """The entity that a clue names, if it may be described in its turn."""
        other = clue.target
        if isinstance(other, str) and other in self.kb.entities and self.wording.nestable(clue.relation, clue.forward):
            return other
        return None

    def _n_candidates(self, clue: Clue) -> int:
        """How many entities satisfy a clue."""
        return self.kb.n_ends(clue.target, clue.relation, not clue.forward)  # type: ignore[arg-type]

    def _satisfies(self, entity: str, clue: Clue) -> bool:
        return any(x == clue.target for x in self.kb.ends(entity, clue.relation, clue.forward))

    def _pair(self, entity: str, clues: Sequence[Clue]) -> Node | None:
        """Two clues with named targets that together give the entity, neither alone: the second is looked up in one
        search."""
        type = self.kb.entities[entity].type
        usable = (c for c in clues if self.sound(c) and self.wording.joinable(type, c.relation, c.forward))
        loose = [(c, n) for c in usable if (n := self._n_candidates(c)) > 1]  # a year has as many as the world is large
        for first, n in loose:
            if n > MOST_CANDIDATES:
                continue
            some = set(self.kb.ends(first.target, first.relation, not first.forward))  # type: ignore[arg-type]
            for second, _ in loose:
                one_search = not second.forward or n == 2
                if one_search and first is not second and {x for x in some if self._satisfies(x, second)} == {entity}:
                    return Node(type=type, clues=(first, second))
        return None


def _clue(fact: Fact, forward: bool) -> Clue:
    """What a fact says of its subject (`forward`), or of its value."""
    return Clue(relation=fact.relation, forward=forward, target=fact.value if forward else fact.subject)
