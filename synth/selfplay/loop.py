"""One round of self-play, and all of them: propose -> certify -> attempt -> score -> reward -> update.

A *cell* is a family at a level. Each round the curriculum picks cells, a proposer answers them with specs, programs
certify the specs (`synth.selfplay.spec`), a solver attempts what was certified, verifiers score it, the proposer gets
its reward, and the curriculum records the success of each cell. Only verdicts `correct` and `wrong` are evidence;
unparsable, timeout and truncated answers are counted separately.

Everything is written to the ledger as it happens. A killed run continues: complete rounds are read back, and of the
unfinished round only the missing rows are made. All randomness is hashed from (seed, round), so the rows are the same
as without the kill.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from synth.selfplay.ledger import Ledger
from synth.selfplay.spec import Family, certify
from synth.types import Problem, Quarantined, Scored, digest, from_row, seed_for, to_row
from synth.verify import extract_answer, verdict, verify
from synth.verify import missing as no_answer

SAVE_EVERY = 0.5  # seconds of certifying that a kill may cost
BLAMELESS = {
    "duplicate",
    "contaminated",
}  # reasons that do not make a proposal invalid: it may be known, or belong to another split


@dataclass(frozen=True)
class Cell:
    """A family at a level, with a problem that stands for it where a curriculum chooses among problems."""

    family: str
    level: int
    example: Problem

    @property
    def name(self) -> str:
        return f"{self.family}/{self.level}"


@dataclass(kw_only=True)
class View:
    """What a proposer sees: `wanted` cells (one spec each), their families' ladders, problems it may change
    (`solved` of them with their success, `failed` with a wrong answer), skills called weak, and counters of its own
    that last (`state`)."""

    wanted: Sequence[Cell]
    cells: Sequence[Cell]
    families: Mapping[str, Family]
    solved: Sequence[tuple[Problem, float]] = ()
    failed: Sequence[tuple[Problem, str]] = ()
    weak: Sequence[str] = ()
    round: int = 0
    state: dict[str, Any] = field(default_factory=dict)


class Solver(Protocol):
    """Answers problems: `samples` texts for each. What it remembers is in `state()`."""

    def __call__(self, problems: Sequence[Problem], samples: int, *seed: Any) -> list[list[str]]: ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...


Propose = Callable[[View, np.random.Generator, int], Sequence[str]]
Choose = Callable[[Sequence[Problem], dict, np.random.Generator, int], list[int]]
Pay = Callable[
    [Sequence[tuple[float, Mapping[str, float]]]], Sequence[float]
]  # (success or nan, flags) of each proposal -> its reward
Stop = Callable[[Sequence[Mapping[str, Any]]], str]  # the summaries so far -> why to stop, "" to go on


@dataclass(kw_only=True)
class Loop:
    """seed, rounds, proposals of a round, attempts at each problem; `held` are problems whose success is measured each
    round, never proposed. memory: how many solved and failed problems a proposer sees."""

    families: Mapping[str, Family]
    cells: Sequence[Cell]
    ledger: Ledger
    propose: Propose
    solve: Solver
    choose: Choose
    pay: Pay
    stop: Stop = lambda summaries: ""
    held: Sequence[Problem] = ()
    seed: int = 0
    rounds: int = 10
    proposals: int = 64
    attempts: int = 8
    memory: int = 64
    accepted: dict[str, Problem] = field(default_factory=dict)
    curriculum: dict[str, Any] = field(default_factory=dict)
    own: dict[str, Any] = field(default_factory=dict)
    solved: list[tuple[Problem, float]] = field(default_factory=list)
    failed: list[tuple[Problem, str]] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> Iterator[dict[str, Any]]:
        """Play the rounds that are left; yields the summary of every round, those of an earlier process among them. A
        held-out problem that is proposed is quarantined as contaminated."""
        for number in range(self.rounds):
            summary = self.ledger.get(number, "summary")
            if summary is None:
                if number:
                    self._restore(self.ledger.get(number - 1, "state"))
                summary = self._play(number)
            else:
                self._recall(number)
            self.summaries.append(summary)
            yield summary
            if summary["stop"]:
                return

    def _recall(self, number: int) -> None:
        """The problems of a round that an earlier process finished."""
        for _, _, body in self.ledger.rows("certificate", number):
            if "problem" in body:
                problem = from_row(Problem, body["problem"])
                self.accepted[problem.id] = problem

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.curriculum, self.own = dict(state["curriculum"]), dict(state["proposer"])
        self.solved = [(from_row(Problem, p), s) for p, s in state["solved"]]
        self.failed = [(from_row(Problem, p), a) for p, a in state["failed"]]
        self.solve.load_state(state["solver"])

    def _play(self, number: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed_for(self.seed, "selfplay", "round", "", number))
        examples = [c.example for c in self.cells]
        wanted = [self.cells[self.choose(examples, self.curriculum, rng, 1)[0]] for _ in range(self.proposals)]
        texts = self._propose(number, wanted, rng)
        items = self._certify(number, texts)
        played = [(i, p) for i, p in enumerate(items) if isinstance(p, Problem)]
        answers = self._attempt(number, "attempt", [p for _, p in played])
        rates, verdicts, right = self._score(number, played, answers)
        flags = [{} if isinstance(p, Problem) else {p.reason: 1.0} for p in items]
        paid = self.pay([(rates.get(i, float("nan")), flags[i]) for i in range(len(items))])
        held = [self._rate(p, a)[0] for p, a in zip(self.held, self._attempt(number, "held", self.held), strict=True)]
        self._update(wanted, played, answers, rates)
        reasons = Counter(p.reason for p in items if isinstance(p, Quarantined))
        scored = verdicts["correct"] + verdicts["wrong"]
        summary = {
            "round": number,
            "proposed": len(texts),
            "certified": len(played),
            "quarantined": dict(sorted(reasons.items())),
            "validity": 1 - sum(n for reason, n in reasons.items() if reason not in BLAMELESS) / max(1, len(texts)),
            "duplicates": reasons["duplicate"] / max(1, len(texts)),
            "verdicts": dict(sorted(verdicts.items())),
            "success": verdicts["correct"] / scored if scored else None,
            "answers": right,
            "held": float(np.nanmean(held)) if held and not np.all(np.isnan(held)) else None,
            "held_n": len(held),
            "reward": float(np.mean(paid)) if len(paid) else None,
            "weak": sorted(self.curriculum.get("weak", ())),
            "cells": dict(sorted(Counter(c.name for c in wanted).items())),
        }
        summary["stop"] = self.stop([*self.summaries, summary])
        self.ledger.add(number, {"reward": [float(x) for x in paid], "state": [self._state()], "summary": [summary]})
        return summary

    def _propose(self, number: int, wanted: Sequence[Cell], rng: np.random.Generator) -> list[str]:
        known = [body for _, _, body in self.ledger.rows("proposal", number)]
        weak = tuple(self.curriculum.get("weak", ()))
        view = View(
            wanted=wanted,
            cells=self.cells,
            families=self.families,
            solved=self.solved,
            failed=self.failed,
            weak=weak,
            round=number,
            state=self.own,
        )
        texts = [
            t.encode("utf-8", "replace").decode() for t in self.propose(view, rng, len(wanted))
        ]  # run even where they are known: it moves the proposer's state
        if known:
            return known
        self.ledger.add(number, {"proposal": texts})
        return texts

    def _certify(self, number: int, texts: Sequence[str]) -> list[Problem | Quarantined]:
        """Every proposal's problem, or why there is none; each is in the ledger. A problem that an earlier proposal
        gave is a duplicate, whatever it is scored with: the prompt decides."""
        known = [body for _, _, body in self.ledger.rows("certificate", number)]
        held = {p.lineage.get("root") for p in self.held} | {p.seen for p in self.held}
        seen = {p.seen: p.id for p in self.accepted.values()}
        done, saved = len(known), time.monotonic()
        out: list[Problem | Quarantined] = []
        for text, body in zip(texts, [*known, *[None] * (len(texts) - len(known))], strict=True):
            if body is not None:
                item = from_row(Problem, body["problem"]) if "problem" in body else Quarantined(**body["quarantined"])
            else:
                item = certify(text, self.families, self.seed)
                if isinstance(item, Problem) and item.seen in seen:
                    evidence = f"{item.question} is problem {seen[item.seen]}, accepted before"
                    item = _aside(text, "duplicate", evidence)
                elif isinstance(item, Problem) and held & {item.lineage["root"], item.seen}:
                    item = _aside(text, "contaminated", f"{item.lineage['root']} is a held-out problem")
            if isinstance(item, Problem):
                self.accepted[item.id] = item
                seen[item.seen] = item.id
            out.append(item)
            if len(out) == len(texts) or time.monotonic() - saved > SAVE_EVERY:
                fresh = [
                    {"problem": to_row(p)} if isinstance(p, Problem) else {"quarantined": vars(p)} for p in out[done:]
                ]
                self.ledger.add(number, {"certificate": fresh}, done)
                done, saved = len(out), time.monotonic()
        return out

    def _attempt(self, number: int, kind: str, problems: Sequence[Problem]) -> list[list[str]]:
        """The texts of the solver, from the ledger where they are there. The solver is asked in any case only for a
        whole round: its state after a round depends on all of it."""
        known = [body for _, _, body in self.ledger.rows(kind, number)]
        if len(known) == len(problems):
            if kind == "attempt" and (state := self.ledger.get(number, "solver")) is not None:
                self.solve.load_state(state)
            return known
        before = copy.deepcopy(self.solve.state()) if kind == "held" else None
        texts = self.solve(problems, self.attempts, self.seed, kind, number) if problems else []
        if before is not None:
            self.solve.load_state(before)  # being measured is no practice
        self.ledger.add(number, {kind: texts} | ({"solver": [self.solve.state()]} if before is None else {}))
        return texts

    def _rate(self, problem: Problem, texts: Sequence[str]) -> tuple[float, list[str]]:
        """Success among the answers that are evidence (nan without any), and all verdicts."""
        scores = [no_answer(t) if (a := extract_answer(t)) is None else verify(problem, a) for t in texts]
        words = [verdict(s) for s in scores]
        counted = [
            s.value for s, w in zip(scores, words, strict=True) if w in ("correct", "wrong") and isinstance(s, Scored)
        ]
        return (float(np.mean(counted)) if counted else float("nan")), words

    def _score(
        self, number: int, played: Sequence[tuple[int, Problem]], answers: Sequence[Sequence[str]]
    ) -> tuple[dict, Counter, int]:
        rates: dict[int, float] = {}
        verdicts: Counter = Counter()
        known = [body for _, _, body in self.ledger.rows("score", number)]
        if len(known) != len(played):
            rated = [self._rate(p, texts) for (_, p), texts in zip(played, answers, strict=True)]
            known = [[None if math.isnan(rate) else rate, words] for rate, words in rated]
            self.ledger.add(number, {"score": known})
        for (i, _), (rate, words) in zip(played, known, strict=True):
            verdicts.update(words)
            if rate is not None:
                rates[i] = rate
        distinct = len({extract_answer(t) for texts in answers for t in texts})
        return rates, verdicts, distinct

    def _update(
        self,
        wanted: Sequence[Cell],
        played: Sequence[tuple[int, Problem]],
        answers: Sequence[Sequence[str]],
        rates: Mapping[int, float],
    ) -> None:
        """Scores to the curriculum, by the cell that the problem belongs to; solved and failed problems to the
        proposer's memory."""
        examples = {(c.family, c.level): c.example.id for c in self.cells}
        scores = self.curriculum.setdefault("scores", {})
        for (i, problem), texts in zip(played, answers, strict=True):
            if i not in rates:
                continue
            name = examples.get((problem.family, int(problem.difficulty["level"])))
            if name is not None:
                scores.setdefault(name, []).append(rates[i])
            if rates[i] > 0:
                self.solved.append((problem, rates[i]))
            wrong = next((a for t in texts if (a := extract_answer(t)) is not None and a != problem.answer), None)
            if wrong is not None and rates[i] < 1:
                self.failed.append((problem, wrong))
        self.solved, self.failed = self.solved[-self.memory :], self.failed[-self.memory :]

    def _state(self) -> dict[str, Any]:
        return {
            "curriculum": self.curriculum,
            "proposer": self.own,
            "solver": self.solve.state(),
            "solved": [(to_row(p), s) for p, s in self.solved],
            "failed": [(to_row(p), a) for p, a in self.failed],
        }


def cells(families: Mapping[str, Family], seed: int) -> list[Cell]:
    """Every level of every family; a level whose first items are quarantined is stood for by the first that is not."""
    out = []
    for name in sorted(families):
        for level in range(1, families[name].levels + 1):
            drawn = (families[name].make(seed, "train", i, levels=[level]) for i in range(100))
            out.append(Cell(name, level, next(p for p in drawn if isinstance(p, Problem))))
    return out


def _aside(text: str, reason: str, evidence: str) -> Quarantined:
    return Quarantined(id=digest("spec", text)[:20], stage="problems", reason=reason, evidence=evidence)
