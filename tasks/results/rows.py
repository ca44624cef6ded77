"""Loads rows of a state as values, to prove them again."""

from __future__ import annotations

from typing import Any

from synth.knowledge.kb import KB, Entity, Fact, Relation
from synth.types import Demonstration, PreferencePair, Problem, from_row
from tasks.results.proofs import Proof, Proofs
from tasks.results.snapshots import Snapshot
from tasks.results.why import Event

KINDS = {
    "facts": (Fact, "fact"),
    "problems": (Problem, "problem"),
    "demonstrations": (Demonstration, "demonstration"),
    "pairs": (PreferencePair, "pair"),
    "removed": (PreferencePair, "pair"),
}


def values(s: Snapshot, name: str, cls: type) -> list[Any]:
    """The rows of a table of a state; [] if it cannot be read."""
    return [
        from_row(cls, {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}) for row in s.rows(name) or ()
    ]


def kb(s: Snapshot) -> KB | None:
    """The knowledge base of a state, None if it cannot be read."""
    parts = [
        values(s, f"artifacts/kb/{n}.parquet", c)
        for n, c in (("entities", Entity), ("relations", Relation), ("facts", Fact))
    ]
    return KB(*parts) if all(parts) else None


def prove(s: Snapshot, event: Event) -> Proof | None:
    """Proves the row of an event again; None for a row that was quarantined before it had a proof."""
    if event.table not in KINDS:
        return None
    cls, method = KINDS[event.table]
    value = from_row(cls, {k: tuple(v) if isinstance(v, list) else v for k, v in event.columns.items()})
    wanted = {getattr(value, "problem", "")}
    problems = (
        [p for t in ("questions", "problems") for p in values(s, f"artifacts/{t}/problems.parquet", Problem)]
        if wanted - {""}
        else []
    )
    needs_kb = cls is Problem and "pattern" in value.lineage
    return getattr(Proofs(kb(s) if needs_kb else None, {p.id: p for p in problems if p.id in wanted}), method)(value)
