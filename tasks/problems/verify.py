"""The results of `espalier verify`: our questions are proved again, foreign questions are inspected."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from synth.questions.certify import certify
from synth.questions.fuzzy.phrases import symmetric
from synth.questions.fuzzy.triples import inspect, read
from synth.questions.prove import Prover
from synth.questions.reprove import FAMILIES, Reprover, reprove
from synth.types import Problem, from_row
from tasks.core.errors import UserError
from tasks.knowledge.stored import Stored, opened
from tasks.storage import commit


def ours(problems: Sequence[Problem], kb: Path, file: Path) -> dict[str, Any]:
    """{rows, proved, refuted: {reason: n}, evidence: [(id, reason, evidence)]} of a file of problems. Questions about a
    knowledge base are proved from the folder `kb`, problems of families from their text alone; the user's phrases, and
    whether every relation was assumed complete, are read from card.json beside the file."""
    card = commit.read_object(file.parent / "card.json") if (file.parent / "card.json").exists() else {}
    about = [p for p in problems if p.family in FAMILIES]
    counts: dict[str, Any] = {"rows": 0, "proved": 0, "refuted": {}, "evidence": []}
    if about:
        closed = bool(card.get("knobs", {}).get("closed_world"))
        counts = reprove(reprover(kb, extra=card.get("phrases"), closed_world=closed), about)
    return _with_families(counts, [p for p in problems if p.family not in FAMILIES])


def published(rows: Sequence[Mapping[str, Any]], kb: Path, file: Path) -> dict[str, Any]:
    """The same for published rows, from their content and the knowledge base alone. Raises UserError for a file
    published by an older version, whose rows lack what a proof needs."""
    about = [row for row in rows if row.get("family") in FAMILIES or "seal" in row]
    families = []
    for row in (row for row in rows if row.get("family") not in FAMILIES and "seal" not in row):
        try:
            families.append(from_row(Problem, row))
        except (KeyError, TypeError, ValueError):
            about.append(row)  # rows that the proof reports as unreadable
    counts: dict[str, Any] = {"rows": 0, "proved": 0, "refuted": {}, "evidence": []}
    if about and not any("seal" in row for row in about):
        raise UserError(
            f"{file} was published by an older version, whose rows lack what a proof needs (seal, bounds, relations): "
            "grow it again (`espalier questions grow`), or verify problems.parquet of the same folder"
        )
    if about:
        counts = reprove(reprover(kb), (), about)
    return _with_families(counts, families)


def reprover(folder: Path, **knobs: Any) -> Reprover:
    """What proves the questions of the knowledge base in a folder: from its files, where all of them are there."""
    base = opened(folder)
    return Reprover(base, held=base.held() if isinstance(base, Stored) else None, **knobs)


def _with_families(counts: dict[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """The counts, with those of problems of families added."""
    for p in problems:
        refuted = _certified(p)
        counts["rows"] += 1
        counts["proved"] += refuted is None
        if refuted is not None:
            reason, _, evidence = refuted.partition(": ")
            counts["evidence"].append((p.id, reason, evidence))
            counts["refuted"][reason] = counts["refuted"].get(reason, 0) + 1
    return counts


def _certified(problem: Problem) -> str | None:
    try:
        return certify(problem)
    except LookupError as error:
        return f"unknown_family: {error}"


def theirs(rows: Sequence[tuple[str, str]], kb: Path | None) -> tuple[list[dict[str, Any]], list[str], Counter]:
    """(findings, quarantined rows as sentences, number of questions per finding) for rows with triples; with `kb`,
    answers are checked too."""
    formal, quarantined = read(rows)
    connection = None
    if kb is not None:
        base: Any = opened(kb)
        connection = base.held().connection if isinstance(base, Stored) else sqlite3.connect(":memory:")
        if not isinstance(base, Stored):
            base.sqlite(connection)
        Prover(connection, symmetric=[r.name for r in base.relations.values() if symmetric(r)])
    findings = [inspect(f, connection) for f in formal]
    count: Counter = Counter()
    for f in findings:
        strong = set(f.beside) - set(f.weak)
        count["a constant beside what is asked"] += bool(strong)
        count["a bare type beside what is asked, and no other constant (weaker)"] += bool(f.weak) and not strong
        count["a triple of two constants"] += bool(f.pairs)
        count["a triple that nothing ties to what is asked"] += bool(f.unconnected)
        count["the answer given away"] += bool(f.leak)
        if connection is not None:
            count["a relation or name that the knowledge base lacks"] += bool(f.unknown)
            count["no answer, or several"] += f.answers is not None and len(f.answers) != 1
            count["a triple that can go"] += bool(f.redundant)
    return [asdict(f) | {"clean": f.clean} for f in findings], [q.evidence for q in quarantined], count


_WEAK = "a bare type beside what is asked (weaker: leave it, or describe it by more triples)"
_TRIPLES = {  # finding -> what is wrong with the numbered triples, and how to fix it
    "beside": "a constant beside what is asked (describe it by more triples)",
    "pairs": "two constants (delete it: it says nothing of a variable)",
    "unconnected": "nothing ties it to what is asked (connect it, or delete it)",
    "redundant": "it can go, the answer is the same (delete it)",
}


def sentences(findings: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One line for each question with a finding: which triple (from 1), what is wrong, how to fix it. Questions with
    only weaker findings come last."""
    for f in sorted(findings, key=lambda f: f["clean"]):
        strong = f | {"beside": [i for i in f["beside"] if i not in f["weak"]]}
        which = {k: ", ".join(str(i + 1) for i in strong[k] or ()) for k in _TRIPLES}
        lines = [f"triple {which[k]}: {what}" for k, what in _TRIPLES.items() if which[k]]
        if f["weak"]:
            lines.append(f"triple {', '.join(str(i + 1) for i in f['weak'])}: {_WEAK}")
        if f["leak"]:
            lines.append(f"{f['leak']} (hide it)")
        if f["unknown"]:
            lines.append(
                f"the knowledge base lacks {', '.join(map(repr, f['unknown']))} (fix the name, or name another --kb)"
            )
        if f["answers"] is not None and len(f["answers"]) != 1:
            several = f"{len(f['answers'])} answers, {', '.join(f['answers'][:3])} among them (add a triple that tells them apart)"
            lines.append(several if f["answers"] else "no answer (a triple is wrong, or its direction)")
        if lines:
            yield f"{f['id']}: " + "; ".join(lines)
