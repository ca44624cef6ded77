"""The published form of a question about a knowledge base: one JSON object, which can be proved with that knowledge
base alone.

    {"id": ..., "question": "...", "answer": "Zelton", "formalization": [["V@country1", "area", "C@about 1,300"], ...],
     "bounds": [[1250, 1350], ...], "relations": {"area": {...}}, ..., "seal": "..."}

formalization   the pattern as triples (`synth.questions.fuzzy.triples`)
bounds          of each triple the numbers that its vague value stands for: [low, high], null where there is no bound,
                or null for no numbers at all
relations       what the knowledge base says of every relation that is used: domain, range, words, whether it is complete
phrases         the user's own words for them, where there are any
seal            hash of everything else in the row

`synth.questions.reprove` checks each of them against the knowledge base.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Protocol

from synth.knowledge.kb import Relation
from synth.questions.fuzzy.spans import value_of
from synth.questions.fuzzy.triples import stated
from synth.questions.pattern import MAYBE, Clue, Named, Pattern, Span, Third, from_json, relations_of
from synth.types import Problem, digest, to_row

Phrases = Mapping[str, Mapping[str, Sequence[str]]]  # relation -> side -> clauses with {y}
ADDED = ("question", "formalization", "bounds", "relations", "seal")
FIELDS = frozenset({"schema_version", *(f.name for f in fields(Problem)), *ADDED})
MAY = frozenset({"phrases"})
OURS = frozenset({"schema_version", "lineage", "seal"})  # a row with one of these claims to be of this form


class Base(Protocol):
    """What is read of a knowledge base: `KB`, or one that is read from its files."""

    @property
    def relations(self) -> Mapping[str, Relation]: ...

    def text(self, value: str) -> str: ...

    def listed(self, relation: str) -> Iterable[str]: ...


class Publisher:
    """Makes the rows of one knowledge base. `phrases`: the user's own, of which a row carries those of its relations."""

    def __init__(self, kb: Base, phrases: Phrases | None = None) -> None:
        self.kb, self.phrases = kb, phrases or {}
        self._cuts: dict[tuple[str, bool], list[float | None]] = {}

    def row(self, problem: Problem) -> dict[str, Any]:
        """The row of a question."""
        pattern = from_json(problem.lineage["pattern"])
        statement = stated(pattern, self.kb.text)
        row: dict[str, Any] = {
            **to_row(problem),
            "question": problem.question,
            "formalization": [triple for triple, _ in statement],
            "bounds": [self._bounds(clue) for _, clue in statement],
            "relations": schema(self.kb, pattern),
        }
        if own := {r: self.phrases[r] for r in row["relations"] if r in self.phrases}:
            row["phrases"] = own
        return row | {"seal": seal(row)}

    def _bounds(self, clue: Clue | Named | None) -> list[float | None] | None:
        if not isinstance(clue, Clue) or not isinstance(clue.target, Span | Third):
            return None
        if isinstance(clue.target, Span):
            return [clue.target.low, clue.target.high]
        key = clue.relation, clue.target.largest
        if key not in self._cuts:
            kind = self.kb.relations[clue.relation].range
            values = sorted(value_of(value, kind) for value in self.kb.listed(clue.relation))
            last = max(0, len(values) * MAYBE // 30 - 1)
            self._cuts[key] = [values[-1 - last], None] if clue.target.largest else [None, values[last]]
        return self._cuts[key]


def seal(row: Mapping[str, Any]) -> str:
    """The hash of a row without its seal."""
    return digest({k: v for k, v in row.items() if k != "seal"})[:32]


def schema(kb: Base, pattern: Pattern) -> dict[str, dict[str, Any]]:
    """What the knowledge base says of the relations of a pattern. Raises KeyError for one that it does not have."""
    return {r: {k: v for k, v in asdict(kb.relations[r]).items() if k != "name"} for r in relations_of(pattern)}
