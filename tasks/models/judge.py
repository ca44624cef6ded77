"""A judge of answers: a model behind an OpenAI-compatible endpoint that says which of two answers to one question is
better. The stage `evaluate` asks it about the answers of two models, the stage `rl` about the answers of one group.

    set:
      evaluate:
        judge: {url: "http://127.0.0.1:8000/v1", model: Qwen/Qwen3-8B, calls: 4000}

Keys: url (up to /v1), model (as the endpoint calls it), rubric (what is better, in words), reference (true: the judge
sees the reference answer), both_orders (true: asked twice, answers swapped; contradiction is a tie), calls and
characters (its budget), audit (how many verified problems each attack is tried on before it counts); of `rl` alone:
opponents (how many other answers of its group each answer is put beside). The key of the endpoint is read from the
environment variable ESPALIER_API_KEY. Verdicts are kept in .espalier/judge.sqlite: the same question is paid for once.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from synth.preferences.judge import RUBRIC, Budget, Case, Judge, Verdict, attacks, trust
from synth.types import Problem, Scored, Unscorable, digest
from tasks.core.errors import UserError, nearest
from tasks.runtime.stage import Stage
from training.metrics import interval
from training.rollout.endpoint import Endpoint
from training.types import Group, Rollout

DEFAULTS = {
    "rubric": RUBRIC,
    "reference": True,
    "both_orders": True,
    "calls": 10_000,
    "characters": 50_000_000,
    "audit": 20,
}
REWARD = {"opponents": 1}  # further keys of a judge that gives rewards
PART = "judge"  # name of the part in a rollout's score
WORTH = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True)
class Judged:
    """verdicts: a row per comparison; rates: "A over B" -> win_rate, ties, consistent, unscorable; card: what was
    asked, and how many attacks the judge withstood."""

    verdicts: list[dict[str, Any]]
    rates: dict[str, dict[str, Any]]
    card: dict[str, Any]


def configured(spec: Mapping[str, Any], where: str = "evaluate.judge", more: Mapping[str, Any] = {}) -> dict[str, Any]:
    """A judge's settings with their defaults, `more` among them. Raises UserError for an unknown key, and if url or
    model is missing."""
    known = {**DEFAULTS, **more}
    for key in spec:
        if key not in {"url", "model", *known}:
            raise UserError(f"{where}: unknown key {key!r}: {nearest(key, ['url', 'model', *known])}")
    for key in ("url", "model"):
        if not isinstance(spec.get(key), str) or not spec[key]:
            raise UserError(
                f'{where}: {key} is missing: write for example {{url: "http://127.0.0.1:8000/v1", model: Qwen/Qwen3-8B}}, '
                "as `vllm serve MODEL` answers it"
            )
    return {**known, **spec}


@dataclass(frozen=True)
class Trusted:
    """A judge that withstood the attacks, so that its comparisons may count."""

    judge: Judge
    endpoint: Endpoint
    reference: bool
    attacks: int
    where: str = "evaluate.judge"
    opponents: int = 0

    def compared(
        self, answers: Mapping[str, Mapping[str, str]], problems: Mapping[str, Problem], against: str
    ) -> Judged:
        """Compares every model's answers (model -> {problem id: answer}) with those of `against`, on the problems that
        both answered.

        Raises UserError where the budget does not cover that, and where the endpoint refuses."""
        verdicts = []
        for name in answers:
            if name != against:
                verdicts += self._pair(name, against, answers, problems)
        rates = {
            pair: _rates([v for v in verdicts if v["pair"] == pair])
            for pair in dict.fromkeys(v["pair"] for v in verdicts)
        }
        card = {"model": self.endpoint.model, "attacks": self.attacks, **self.spent}
        return Judged(verdicts, rates, card)

    @property
    def spent(self) -> dict[str, int]:
        return {**self.judge.budget.spent, **vars(self.endpoint.usage)}

    def rewarded(self, groups: Sequence[Group]) -> list[Group]:
        """The groups, each score with the part "judge": the share of comparisons with other answers of the group that
        the rollout's answer won, where a tie counts half. A rollout without a verdict is Unscorable. Equal answers are
        compared as one, and get a half if the group has no other answer.

        Raises UserError where the budget does not cover that, and where the endpoint refuses."""
        comparisons, pairs = [], []  # per group: the distinct answers, and which are compared with which
        for group in groups:
            kinds = list(dict.fromkeys(_answer(r) for r in group.rollouts if isinstance(r.score, Scored)))
            comparisons.append(kinds)
            pairs.append(_ring(len(kinds), self.opponents))
        cases = []
        for group, kinds, ring in zip(groups, comparisons, pairs, strict=True):
            problem = group.rollouts[0].problem
            reference = problem.answer if self.reference else ""
            cases += [
                Case(question=problem.question, first=kinds[i], second=kinds[j], reference=reference) for i, j in ring
            ]
        with _sentences(self.where):
            verdicts = iter(self.judge.compare(cases))
        out = []
        for group, kinds, ring in zip(groups, comparisons, pairs, strict=True):
            won: dict[str, list[float]] = {kind: [] for kind in kinds}
            for (i, j), verdict in zip(ring, verdicts, strict=False):
                if isinstance(verdict, Verdict):
                    won[kinds[i]].append(WORTH[verdict.winner])
                    won[kinds[j]].append(1.0 - WORTH[verdict.winner])
            out.append(replace(group, rollouts=tuple(_with_part(r, won, alone=not ring) for r in group.rollouts)))
        return out

    def _pair(
        self, name: str, against: str, answers: Mapping[str, Mapping[str, str]], problems: Mapping[str, Problem]
    ) -> list[dict[str, Any]]:
        both = sorted(answers[name].keys() & answers[against].keys() & problems.keys())
        cases = [
            Case(
                question=problems[i].question,
                first=answers[name][i],
                second=answers[against][i],
                reference=problems[i].answer if self.reference else "",
            )
            for i in both
        ]
        with _sentences():
            verdicts = self.judge.compare(cases)
        return [
            {"pair": f"{name} over {against}", "problem": i, **_said(v)} for i, v in zip(both, verdicts, strict=True)
        ]


def trusted(
    stage: Stage,
    spec: Mapping[str, Any],
    problems: Sequence[Problem],
    *,
    where: str = "evaluate.judge",
    more: Mapping[str, Any] = {},
    answers: int = 0,
) -> Trusted:
    """The judge of a setting, after the usual attacks were tried on it in the form in which it will be asked, with
    `problems` whose answers a program has proved. more: settings besides the usual ones; answers: how many will be
    judged at most, if known.

    Raises UserError with the report if the judge is fooled, follows the order or gives no verdict
    (`synth.preferences.judge.trust`); if the endpoint refuses; and, before anything is asked, if the budget does not
    cover the answers."""
    told = configured(spec, where, more)
    suite = [a if told["reference"] else replace(a, reference="") for a in attacks(problems[: told["audit"]])]
    most = (answers * told.get("opponents", 0) + len(suite)) * (2 if told["both_orders"] else 1)
    if answers and told["opponents"] < 1:
        raise UserError(f"{where}: opponents = {told['opponents']}: an answer is put beside at least one other")
    if answers and told["calls"] < most:
        raise UserError(
            f"{where}: {answers:,} answers and {len(suite)} attacks are up to {most:,} calls, and calls is {told['calls']:,}: raise it, or "
            "take fewer steps, prompts or samples"
        )
    with _sentences(where):
        endpoint = Endpoint(
            url=told["url"],
            model=told["model"],
            cache=stage.root / ".espalier/judge.sqlite",
            key=os.environ.get("ESPALIER_API_KEY", ""),
        )
        budget = Budget(calls=told["calls"], characters=told["characters"])
        judge = Judge(endpoint, rubric=told["rubric"], both_orders=told["both_orders"], budget=budget)
        return Trusted(trust(judge, suite), endpoint, told["reference"], len(suite), where, told.get("opponents", 0))


def rewarding(stage: Stage, spec: Mapping[str, Any], problems: Sequence[Problem], answers: int) -> Trusted:
    """The judge of `rl.judge`, tested on some of the training problems."""
    n = configured(spec, "rl.judge", REWARD)["audit"]
    chosen = heapq.nsmallest(n, problems, key=lambda p: digest("judge", p.id))
    return trusted(stage, spec, chosen, where="rl.judge", more=REWARD, answers=answers)


@contextmanager
def _sentences(where: str = "evaluate.judge") -> Iterator[None]:
    try:
        yield
    except ValueError as e:
        raise UserError(f"{where}: {e}") from e


def _ring(n: int, opponents: int) -> list[tuple[int, int]]:
    """Pairs each of n with the next few, cyclically, no pair twice."""
    return list(
        dict.fromkeys(
            (min(i, j), max(i, j)) for i in range(n) for d in range(1, opponents + 1) if (j := (i + d) % n) != i
        )
    )


def _answer(rollout: Rollout) -> str:
    """The model's last turn, "" if it never spoke."""
    return next((m.content for m in reversed(rollout.info["messages"]) if m.role == "assistant"), "")


def _with_part(rollout: Rollout, won: Mapping[str, Sequence[float]], *, alone: bool) -> Rollout:
    if not isinstance(rollout.score, Scored):
        return rollout
    known = [0.5] if alone else won[_answer(rollout)]
    if not known:
        return replace(
            rollout, score=Unscorable(reason="no_verdict: the judge said nothing of this answer that could be read")
        )
    return replace(rollout, score=replace(rollout.score, parts={**rollout.score.parts, PART: sum(known) / len(known)}))


def _said(verdict: Verdict | Unscorable) -> dict[str, Any]:
    if isinstance(verdict, Verdict):
        return {"winner": verdict.winner, "consistent": verdict.consistent, "said": list(verdict.said)}
    return {"winner": None, "consistent": None, "said": [verdict.reason]}


def _rates(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Among the questions with a verdict: the shares won (a tie is half), tied, and judged alike in both orders; among
    all: the share without a verdict."""
    known = [v for v in verdicts if v["winner"]]
    return {
        "win_rate": interval([WORTH[v["winner"]] for v in known], shares=True),
        "ties": interval([float(v["winner"] == "tie") for v in known], shares=True),
        "consistent": interval([float(v["consistent"]) for v in known], shares=True),
        "unscorable": interval([float(not v["winner"]) for v in verdicts], shares=True),
    }
