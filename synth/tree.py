"""Entity trees: questions as patterns over a knowledge base, their answers by postings, and the proof by SQL.

A *term* is a constant (an entity id, or a literal) or a `Node`: a variable of one type, described by clues. A `Clue` is one fact about the
variable whose other end is again a term. A `Pattern` asks one relation of a root term:

    What is the capital of the country that the Danu flows through?
    Pattern(relation="capital", forward=True, root=Node(type="country", clues=(Clue(relation="river", forward=False, target="danu"),)))

Two routes compute the answers, and they share no code: `answers` walks the postings of the `KB` by entity id; `Prover` writes one SQL query
over the tables of the KB, in which a constant is what the reader of the question sees: every entity that bears the name. A question is
accepted only where both give exactly one answer and where the deletion of any clue gives more than one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from synth.kb import KB
from synth.types import digest


@dataclass(frozen=True, kw_only=True)
class Clue:
    """A fact about a variable x: (x, relation, target) where `forward`, else (target, relation, x)."""

    relation: str
    forward: bool
    target: str | Node


@dataclass(frozen=True, kw_only=True)
class Node:
    """A variable: the entities of `type` that satisfy every clue."""

    type: str
    clues: tuple[Clue, ...]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The question for the objects of `relation` of the root (`forward`), or for the subjects whose object is the root."""

    relation: str
    forward: bool
    root: str | Node


def follow(kb: KB, value: str, relation: str, forward: bool) -> tuple[str, ...]:
    """What (value, relation, ?) or (?, relation, value) gives."""
    return tuple(kb.forward(value, relation) if forward else kb.backward(relation, value))


def extension(kb: KB, term: str | Node) -> frozenset[str]:
    """The ids that satisfy a term, bottom-up over postings, the clues of a node intersected."""
    if isinstance(term, str):
        return frozenset({term})
    sets = []
    for clue in term.clues:
        sets.append({x for value in extension(kb, clue.target) for x in follow(kb, value, clue.relation, not clue.forward)})
    found = set.intersection(*sets) if sets else set(kb.entities)
    return frozenset(x for x in found if x in kb.entities and kb.entities[x].type == term.type)


def answers(kb: KB, pattern: Pattern) -> frozenset[str]:
    """The ids or literals that answer a pattern."""
    return frozenset(x for value in extension(kb, pattern.root) for x in follow(kb, value, pattern.relation, pattern.forward))


def support(kb: KB, pattern: Pattern, answer: str) -> list[str]:
    """The ids of the facts that a unique answer rests on, from the leaves to the answer."""
    out: list[str] = []

    def fact(x: str, relation: str, y: str, forward: bool) -> None:
        subject, value = (x, y) if forward else (y, x)
        out.extend(f.id for f in kb.facts_of(subject, relation) if f.value == value)

    def walk(term: str | Node) -> str:
        if isinstance(term, str):
            return term
        me = next(iter(extension(kb, term)))
        for clue in term.clues:
            fact(me, clue.relation, walk(clue.target), clue.forward)
        return me

    fact(walk(pattern.root), pattern.relation, answer, pattern.forward)
    return out


def nodes(term: str | Node) -> Iterator[Node]:
    """Every variable of a term, the outermost first."""
    if isinstance(term, Node):
        yield term
        for clue in term.clues:
            yield from nodes(clue.target)


def constants(term: str | Node) -> list[str]:
    """The constants of a term, in reading order."""
    return [term] if isinstance(term, str) else [c for clue in term.clues for c in constants(clue.target)]


def deletions(term: str | Node) -> Iterator[Node]:
    """The term without one of its clues, once for every clue at any depth."""
    if isinstance(term, str):
        return
    for i, clue in enumerate(term.clues):
        rest, after = term.clues[:i], term.clues[i + 1 :]
        yield Node(type=term.type, clues=rest + after)
        for smaller in deletions(clue.target):
            yield Node(type=term.type, clues=(*rest, Clue(relation=clue.relation, forward=clue.forward, target=smaller), *after))


def to_json(pattern: Pattern | Node | str) -> Any:
    """A pattern as JSON values: kept in the lineage of its problem, so that a published file can be proved again."""
    if isinstance(pattern, str):
        return pattern
    if isinstance(pattern, Pattern):
        return {"relation": pattern.relation, "forward": pattern.forward, "root": to_json(pattern.root)}
    return {
        "type": pattern.type,
        "clues": [{"relation": c.relation, "forward": c.forward, "target": to_json(c.target)} for c in pattern.clues],
    }


def term_from_json(data: str | Mapping[str, Any]) -> str | Node:
    """The inverse of `to_json` for a term."""
    if isinstance(data, str):
        return data
    clues = (Clue(relation=c["relation"], forward=c["forward"], target=term_from_json(c["target"])) for c in data["clues"])
    return Node(type=data["type"], clues=tuple(clues))


def from_json(data: Mapping[str, Any]) -> Pattern:
    """The inverse of `to_json` for a pattern."""
    return Pattern(relation=data["relation"], forward=data["forward"], root=term_from_json(data["root"]))


def canonical(pattern: Pattern) -> str:
    """64 hex digits, equal for patterns that differ in the order of clues only: the key of structural duplicates."""

    def normal(data: Any) -> Any:
        if isinstance(data, str):
            return data
        return [data["type"], sorted(([c["relation"], c["forward"], normal(c["target"])] for c in data["clues"]), key=digest)]

    data = to_json(pattern)
    return digest(data["relation"], data["forward"], normal(data["root"]))


class Prover:
    """Answers patterns by SQL over the tables `entity` and `fact` that `KB.sqlite` wrote into `connection`.

    Names instead of ids: an entity constant stands for every entity that bears one of its names or aliases, case ignored.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        connection.executescript(
            """
            CREATE TEMP TABLE IF NOT EXISTS called AS
                SELECT id AS entity, lower(name) AS text, 1 AS main FROM entity
                UNION SELECT e.id, lower(a.value), 0 FROM entity e, json_each(e.aliases) a WHERE lower(a.value) <> lower(e.name);
            CREATE INDEX IF NOT EXISTS called_text ON called(text);
            CREATE INDEX IF NOT EXISTS called_entity ON called(entity);
            """
        )

    def query(self, pattern: Pattern) -> tuple[str, list[str]]:
        """The SQL text of a pattern and its parameters. Every clue is one row of `fact`, every variable one row of `entity`."""
        tables: list[str] = []
        where: list[str] = []
        values: list[str] = []

        def fact(relation: str) -> str:
            name = f"f{sum(t.startswith('fact') for t in tables)}"
            tables.append(f"fact {name}")
            where.append(f"{name}.relation = ?")
            values.append(relation)
            return name

        def constrain(term: str | Node, column: str) -> None:
            if isinstance(term, str):
                known = self.connection.execute("SELECT 1 FROM entity WHERE id = ?", (term,)).fetchone()
                if not known:
                    where.append(f"{column.replace('.object', '.literal')} = ?")
                else:
                    where.append(
                        f"{column} IN (SELECT entity FROM called WHERE text = (SELECT text FROM called WHERE entity = ? AND main))"
                    )
                values.append(term)
                return
            node = f"e{sum(t.startswith('entity') for t in tables)}"
            tables.append(f"entity {node}")
            where.append(f"{column} = {node}.id AND {node}.type = ?")
            values.append(term.type)
            for clue in term.clues:
                name = fact(clue.relation)
                mine, other = ("subject", "object") if clue.forward else ("object", "subject")
                where.append(f"{name}.{mine} = {node}.id")
                constrain(clue.target, f"{name}.{other}")

        asked = fact(pattern.relation)
        result = f"COALESCE({asked}.object, {asked}.literal)" if pattern.forward else f"{asked}.subject"
        constrain(pattern.root, f"{asked}.subject" if pattern.forward else f"{asked}.object")
        return f"SELECT DISTINCT {result} FROM {', '.join(tables)} WHERE {' AND '.join(where)}", values

    def answers(self, pattern: Pattern, *, limit: int = -1) -> set[str]:
        """The distinct answers, at most `limit` of them where it is not negative."""
        text, values = self.query(pattern)
        return {row[0] for row in self.connection.execute(f"{text} LIMIT {int(limit)}", values)}

    def refute(self, pattern: Pattern, answer: str) -> tuple[str, str] | None:
        """None where `answer` is the only one and every clue is needed for that; else the reason code and the evidence."""
        found = self.answers(pattern, limit=5)
        if found != {answer}:
            return "not_unique", f"{len(found)} answers by SQL: {', '.join(sorted(found))}"
        for root in deletions(pattern.root):
            smaller = Pattern(relation=pattern.relation, forward=pattern.forward, root=root)
            if len(self.answers(smaller, limit=2)) < 2:
                return "redundant_clue", f"the same answer without a clue: {to_json(root)}"
        return None
