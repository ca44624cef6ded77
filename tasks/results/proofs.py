"""Proves a row again, as lines that a person can follow.

A question over the knowledge base is answered by SQL: all its clues together must give the stored answer and no other,
and no clue may be dispensable. A problem of a family is solved again from its text by the family's second route. A
demonstration must end in an answer that the problem's verifier accepts. Both sides of a pair are scored by the
verifier, if they are answers. A fact points to the source line that states it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from synth.knowledge.kb import KB, Fact
from synth.questions.certify import certify
from synth.questions.pattern import canonical, from_json
from synth.questions.prove import Prover
from synth.types import Demonstration, PreferencePair, Problem, Scored
from synth.verify import extract_answer, verify


@dataclass(frozen=True)
class Proof:
    """`holds`: None if there is nothing to prove; `lines`: the findings."""

    holds: bool | None
    lines: tuple[str, ...]


class Proofs:
    """Proofs over one knowledge base (None: questions over it are not proved, and their lines say so)."""

    def __init__(self, kb: KB | None, problems: Mapping[str, Problem]) -> None:
        self.kb, self.problems = kb, problems
        self._prover: Prover | None = None

    def _sql(self, kb: KB) -> Prover:
        if self._prover is None:
            connection = sqlite3.connect(":memory:")
            kb.sqlite(connection)
            self._prover = Prover(connection)
        return self._prover

    def problem(self, p: Problem) -> Proof:
        if "pattern" not in p.lineage:
            return self._family(p)
        if self.kb is None:
            return Proof(None, ("its knowledge base is not here: it cannot be asked again",))
        pattern = from_json(p.lineage["pattern"])
        lines = [
            f"fact: {_said(self.kb, self.kb.facts[i])}"
            if i in self.kb.facts
            else f"fact {i} is not in the knowledge base"
            for i in p.lineage.get("facts", ())
        ]
        prover = self._sql(self.kb)
        answers = sorted(prover.answers(pattern, limit=5))
        names = [self.kb.text(x) for x in answers]
        if names != [p.answer]:
            return Proof(
                False, (*lines, f"by SQL it has {len(answers)} answers ({', '.join(names)}), not only {p.answer!r}")
            )
        refuted = prover.refute(pattern, answers[0])
        lines.append(
            "by SQL: this answer and no other, and not without any one of its clues"
            if refuted is None
            else ": ".join(refuted)
        )
        return Proof(refuted is None, (*lines, f"structure {canonical(pattern)[:12]}"))

    def _family(self, p: Problem) -> Proof:
        try:
            wrong = certify(p)
        except LookupError:
            score = verify(p, p.answer)
            holds = isinstance(score, Scored) and score.value == 1.0
            return Proof(
                holds,
                (
                    f"its own answer scores {score.value if isinstance(score, Scored) else score.reason} by {p.verifier}",
                ),
            )
        routes = " and ".join(p.lineage.get("certificate", ()))
        lines = [f"worked: {p.lineage['solution']}"] if p.lineage.get("solution") else []
        lines.append(f"solved again from its text ({routes}): the same answer" if wrong is None else wrong)
        return Proof(wrong is None, tuple(lines))

    def demonstration(self, t: Demonstration) -> Proof:
        answer = extract_answer(t.messages[-1].content)
        p = self.problems.get(t.problem)
        if p is None:
            return Proof(None, (f"its problem {t.problem} is not here",))
        score = verify(p, answer)
        good = isinstance(score, Scored) and score.value == 1.0
        detours = f", {t.detours} of them a detour" if t.detours else ""
        return Proof(
            good, (f"{t.calls} searches{detours}; the answer {answer!r} scores {_value(score)} by {p.verifier}",)
        )

    def pair(self, pair: PreferencePair) -> Proof:
        p = self.problems.get(pair.problem)
        sides = [extract_answer(side) for side in (pair.chosen, pair.rejected)]
        if p is None or None in sides:
            why = (
                "no verifier knows its problem"
                if p is None
                else "not both sides are answers: they are judged by what their search finds"
            )
            return Proof(None, (why,))
        scores = [verify(p, side) for side in sides]
        values = [s.value if isinstance(s, Scored) else float("nan") for s in scores]
        return Proof(
            bool(values[0] > values[1]), (f"by {p.verifier}: chosen {_value(scores[0])}, rejected {_value(scores[1])}",)
        )

    def fact(self, f: Fact) -> Proof:
        return Proof(bool(f.source), (f"{f.source}: {f.span}" if f.source else "no source is named",))


def _said(kb: KB, fact: Fact) -> str:
    sentence = kb.relations[fact.relation].sentence(kb.text(fact.subject), [kb.text(fact.value)])
    return f"{sentence}  [{fact.source}]"


def _value(score: object) -> str:
    return f"{score.value:g}" if isinstance(score, Scored) else str(score)


def talk(messages: Sequence) -> list[str]:
    """A conversation, a line each."""
    return [f"{m.role}: {m.content}" for m in messages]
