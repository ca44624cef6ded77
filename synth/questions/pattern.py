"""Entity trees: questions as patterns over a knowledge base, and their answers by postings.

A *term* is a constant (an entity id, or a literal) or a `Node`: a variable of one type, described by clues. A `Clue` is
one fact about the
variable whose other end is again a term. A `Pattern` asks one relation of a root term:

    What is the capital of the country that the Danu flows through?
    Pattern(relation="capital", forward=True, root=Node(type="country", clues=(Clue(relation="river", forward=False,
    target="danu"),)))

The other end of a clue may also be fuzzy: a `Span` of values, a `Third` of a ranking, more or less `Than` another
term's value, or `Nothing` at all; and `Named` says something about the variable's own name. Each has an extension that
a program can compute, which is what makes a fuzzy question provable (`synth.questions.fuzzy`). `answers` and
`extension` here walk the postings of a `KB` for patterns of constants and nodes; `synth.questions.prove` answers every
pattern by SQL, and the two share no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from synth.knowledge.kb import KB
from synth.types import digest

FAR = 99  # steps to a constant where there is none


@dataclass(frozen=True, kw_only=True)
class Span:
    """A value between `low` and `high`, both included. `said` is how it is put into words ("about 1,300");
    `synth.questions.fuzzy.spans` reads it."""

    low: float
    high: float
    said: str


MAYBE, SURELY = 11, 9  # of 30 values: those that may be counted into a third, and those that surely are


@dataclass(frozen=True, kw_only=True)
class Third:
    """A value in the top (`largest`) or bottom third of all values of the relation.

    Readers count ties in different ways, so it has two meanings, as a span has: all that a reader may count in are the
    first MAYBE of 30 values and what equals the last of them; `sure` are values that lie, with all that equal them, among
    the first SURELY of 30.
    """

    largest: bool
    sure: bool = False


@dataclass(frozen=True, kw_only=True)
class Than:
    """A value of the same relation above (`larger`) or below that of another term."""

    larger: bool
    other: str | Node


@dataclass(frozen=True)
class Nothing:
    """No value at all: a fact only where the relation is complete."""


@dataclass(frozen=True, kw_only=True)
class Named:
    """The variable's name begins with `initial` and has `words` words (0: any number)."""

    initial: str
    words: int = 0


@dataclass(frozen=True, kw_only=True)
class Clue:
    """A fact about a variable x: (x, relation, target) where `forward`, else (target, relation, x)."""

    relation: str
    forward: bool
    target: str | Node | Span | Third | Than | Nothing


@dataclass(frozen=True, kw_only=True)
class Node:
    """A variable: the entities of `type` that satisfy every clue."""

    type: str
    clues: tuple[Clue | Named, ...]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The question for the objects of `relation` of the root (`forward`), or for the subjects whose object is the
    root."""

    relation: str
    forward: bool
    root: str | Node


def exact(clue: Clue | Named) -> tuple[Clue, str | Node]:
    """A clue and the constant or node that it leads to. Raises ValueError for a fuzzy one."""
    if isinstance(clue, Named) or not isinstance(clue.target, str | Node):
        raise ValueError(
            f"{clue} is fuzzy: synth.questions.fuzzy.graph and synth.questions.prove compute what satisfies it"
        )
    return clue, clue.target


def extension(kb: KB, term: str | Node) -> frozenset[str]:
    """The ids that satisfy a term of constants and nodes, bottom-up over postings. Raises ValueError for a fuzzy
    clue."""
    if isinstance(term, str):
        return frozenset({term})
    ends = [(clue, extension(kb, target)) for clue, target in map(exact, term.clues)]
    # The clue that fewest satisfy leads, and of these the others are asked: of one year there may be thousands.
    ends.sort(key=lambda end: sum(kb.n_ends(value, end[0].relation, not end[0].forward) for value in end[1]))
    entities: Iterable[str] = kb.entities
    for clue, values in ends[:1]:
        entities = {x for value in values for x in kb.ends(value, clue.relation, not clue.forward)}
    for clue, values in ends[1:]:
        entities = {x for x in entities if any(y in values for y in kb.ends(x, clue.relation, clue.forward))}
    return frozenset(x for x in entities if x in kb.entities and kb.entities[x].type == term.type)


def answers(kb: KB, pattern: Pattern) -> frozenset[str]:
    """The ids or literals that answer a pattern."""
    return frozenset(
        x for value in extension(kb, pattern.root) for x in kb.ends(value, pattern.relation, pattern.forward)
    )


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
        for clue, target in map(exact, term.clues):
            fact(me, clue.relation, walk(target), clue.forward)
        return me

    fact(walk(pattern.root), pattern.relation, answer, pattern.forward)
    return out


def inner(clue: Clue | Named) -> str | Node | None:
    """The term that a clue leads to, if it leads to one."""
    target = clue.target if isinstance(clue, Clue) else None
    target = target.other if isinstance(target, Than) else target
    return target if isinstance(target, str | Node) else None


def hub(clue: Clue | Named) -> str | Node | None:
    """The term that a clue only shares something with: "in the same category as Neon" leads through the category to
    Neon by one relation, there and back. None for another clue."""
    if not isinstance(clue, Clue) or not clue.forward or not isinstance(clue.target, Node):
        return None
    (back,) = clue.target.clues if len(clue.target.clues) == 1 else (None,)
    if not isinstance(back, Clue) or back.relation != clue.relation or back.forward:
        return None
    return back.target if isinstance(back.target, str | Node) else None


def steps(clue: Clue | Named) -> int:
    """How soon a clue leads to a constant: 0 at once, `FAR` never. A span is almost as far: only an index of values
    finds its members."""
    if isinstance(clue, Named) or isinstance(clue.target, Third | Than | Nothing):
        return FAR
    if isinstance(clue.target, Span):
        return FAR - 1
    if isinstance(clue.target, str):
        return 0
    return min((min(FAR, 1 + steps(c)) for c in clue.target.clues), default=FAR)


def nesting(term: str | Node) -> int:
    """How many variables stand in each other."""
    if isinstance(term, str):
        return 0
    return 1 + max((nesting(t) for c in term.clues if (t := inner(c)) is not None), default=0)


def nodes(term: str | Node) -> Iterator[Node]:
    """Every variable of a term, the outermost first."""
    if isinstance(term, Node):
        yield term
        for clue in term.clues:
            if (target := inner(clue)) is not None:
                yield from nodes(target)


def constants(term: str | Node) -> list[str]:
    """The constants of a term, in reading order."""
    return (
        [term]
        if isinstance(term, str)
        else [c for clue in term.clues if (t := inner(clue)) is not None for c in constants(t)]
    )


def relations_of(pattern: Pattern) -> list[str]:
    """The relations of a pattern, sorted."""
    used = {c.relation for node in nodes(pattern.root) for c in node.clues if isinstance(c, Clue)}
    return sorted(used | {pattern.relation})


def searches(term: str | Node) -> int:
    """How many searches find what a term of names and descriptions means: one for each clue."""
    return 0 if isinstance(term, str) else sum(1 + searches(t) for c in term.clues if (t := inner(c)) is not None)


def deletions(term: str | Node) -> Iterator[Node]:
    """The term without one of its clues, once for every clue at any depth."""
    if isinstance(term, str):
        return
    for i, clue in enumerate(term.clues):
        rest, after = term.clues[:i], term.clues[i + 1 :]
        yield Node(type=term.type, clues=rest + after)
        if isinstance(clue, Clue) and isinstance(target := inner(clue), Node):
            for smaller in deletions(target):
                yield Node(type=term.type, clues=(*rest, _redirected(clue, smaller), *after))


def _redirected(clue: Clue, term: Node) -> Clue:
    """The clue, leading to another term."""
    return replace(clue, target=replace(clue.target, other=term) if isinstance(clue.target, Than) else term)


def to_json(pattern: Pattern | Node | str) -> Any:
    """A pattern as JSON values: kept in the lineage of its problem, so that a published file can be proved again."""
    if isinstance(pattern, str):
        return pattern
    if isinstance(pattern, Pattern):
        return {"relation": pattern.relation, "forward": pattern.forward, "root": to_json(pattern.root)}
    return {"type": pattern.type, "clues": [_clue_to_json(c) for c in pattern.clues]}


def _clue_to_json(clue: Clue | Named) -> dict[str, Any]:
    if isinstance(clue, Named):
        return {"initial": clue.initial, "words": clue.words}
    target = clue.target
    if isinstance(target, Span):
        target_json: Any = {"low": target.low, "high": target.high, "said": target.said}
    elif isinstance(target, Third):
        target_json = {"third": "top" if target.largest else "bottom"}
    elif isinstance(target, Than):
        target_json = {"than": "more" if target.larger else "less", "other": to_json(target.other)}
    else:
        target_json = None if isinstance(target, Nothing) else to_json(target)
    return {"relation": clue.relation, "forward": clue.forward, "target": target_json}


def term_from_json(data: str | Mapping[str, Any]) -> str | Node:
    """The inverse of `to_json` for a term."""
    if isinstance(data, str):
        return data
    return Node(type=data["type"], clues=tuple(map(_clue_from_json, data["clues"])))


def _clue_from_json(data: Mapping[str, Any]) -> Clue | Named:
    if "initial" in data:
        return Named(initial=data["initial"], words=data["words"])
    given = data["target"]
    target: Any
    if given is None:
        target = Nothing()
    elif isinstance(given, Mapping) and "said" in given:
        target = Span(low=given["low"], high=given["high"], said=given["said"])
    elif isinstance(given, Mapping) and "third" in given:
        target = Third(largest=given["third"] == "top")
    elif isinstance(given, Mapping) and "than" in given:
        target = Than(larger=given["than"] == "more", other=term_from_json(given["other"]))
    else:
        target = term_from_json(given)
    return Clue(relation=data["relation"], forward=data["forward"], target=target)


def from_json(data: Mapping[str, Any]) -> Pattern:
    """The inverse of `to_json` for a pattern. Raises KeyError where a part is missing."""
    return Pattern(relation=data["relation"], forward=data["forward"], root=term_from_json(data["root"]))


def canonical(pattern: Pattern) -> str:
    """64 hex digits, equal for patterns that differ in the order of clues only: the key of structural duplicates."""

    def normal(data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        if "other" in data:
            return [data["than"], normal(data["other"])]
        if "clues" not in data:
            return data
        clues = ([c["relation"], c["forward"], normal(c["target"])] if "relation" in c else c for c in data["clues"])
        return [data["type"], sorted(clues, key=digest)]

    data = to_json(pattern)
    return digest(data["relation"], data["forward"], normal(data["root"]))
