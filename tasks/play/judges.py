"""A judge of answers: a model behind an OpenAI-compatible endpoint, which says of two models' answers to one question which is better.

    set:
      evaluate:
        judge: {url: http://127.0.0.1:8000/v1, model: Qwen/Qwen3-8B, calls: 4000}

Keys: url (up to /v1), model (as the endpoint calls it), rubric (what is better, in words), reference (true: the judge sees the reference
answer), both_orders (true: asked twice, answers swapped; contradiction is a tie), calls and characters (its budget), audit (how many verified
problems each attack is tried on before it counts). The key of the endpoint is read from the environment, ESPALIER_API_KEY. What it said is
kept in .espalier/judge.sqlite: the same question is paid for once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from synth.judge import RUBRIC, Budget, Case, Judge, Verdict, attacks, trust
from synth.types import Problem, Unscorable
from tasks.errors import UserError, nearest
from tasks.stage import Stage
from training.evaluate import interval
from training.rollout.endpoint import Endpoint

DEFAULTS = {"rubric": RUBRIC, "reference": True, "both_orders": True, "calls": 10_000, "characters": 50_000_000, "audit": 20}
WORTH = {"first": 1.0, "tie": 0.5, "second": 0.0}


@dataclass(frozen=True)
class Judged:
    """verdicts: a row per comparison; rates: "A over B" -> win_rate, ties, consistent, unscorable; card: what was asked, and how many attacks
    the judge stood."""

    verdicts: list[dict[str, Any]]
    rates: dict[str, dict[str, Any]]
    card: dict[str, Any]


def configured(spec: Mapping[str, Any]) -> dict[str, Any]:
    """`evaluate.judge` with its defaults. Raises UserError for a key that nothing reads, and where url or model is missing."""
    for key in spec:
        if key not in {"url", "model", *DEFAULTS}:
            raise UserError(f"evaluate.judge: unknown key {key!r}: {nearest(key, ['url', 'model', *DEFAULTS])}")
    for key in ("url", "model"):
        if not isinstance(spec.get(key), str) or not spec[key]:
            raise UserError(
                f"evaluate.judge: {key} is missing: write for example {{url: http://127.0.0.1:8000/v1, model: Qwen/Qwen3-8B}}, "
                "as `vllm serve MODEL` answers it"
            )
    return {**DEFAULTS, **spec}


@dataclass(frozen=True)
class Trusted:
    """A judge that stood the attacks, so that it may say whose answers are better."""

    judge: Judge
    endpoint: Endpoint
    reference: bool
    attacks: int

    def compared(self, answers: Mapping[str, Mapping[str, str]], problems: Mapping[str, Problem], against: str) -> Judged:
        """Every model's answer (model -> {problem id: answer}) beside that of `against`, on the problems that both answered.

        Raises UserError where the budget does not cover that, and where the endpoint refuses."""
        verdicts = []
        for name in answers:
            if name != against:
                verdicts += self._pair(name, against, answers, problems)
        rates = {pair: _rates([v for v in verdicts if v["pair"] == pair]) for pair in dict.fromkeys(v["pair"] for v in verdicts)}
        card = {"model": self.endpoint.model, "attacks": self.attacks, **self.judge.budget.spent, **vars(self.endpoint.usage)}
        return Judged(verdicts, rates, card)

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
        return [{"pair": f"{name} over {against}", "problem": i, **_said(v)} for i, v in zip(both, verdicts, strict=True)]


def trusted(stage: Stage, spec: Mapping[str, Any], problems: Sequence[Problem]) -> Trusted:
    """The judge of `evaluate.judge`, after the usual attacks were tried on it, with `problems` whose answers a program has proved.

    Raises UserError with the report where it is fooled, follows the order or gives no verdict (`synth.judge.trust`), and where the endpoint
    refuses."""
    told = configured(spec)
    with _sentences():
        endpoint = Endpoint(
            url=told["url"], model=told["model"], cache=stage.root / ".espalier/judge.sqlite", key=os.environ.get("ESPALIER_API_KEY", "")
        )
        budget = Budget(calls=told["calls"], characters=told["characters"])
        judge = Judge(endpoint, rubric=told["rubric"], both_orders=told["both_orders"], budget=budget)
        suite = attacks(problems[: told["audit"]])
        return Trusted(trust(judge, suite), endpoint, told["reference"], len(suite))


@contextmanager
def _sentences() -> Iterator[None]:
    try:
        yield
    except ValueError as e:
        raise UserError(f"evaluate.judge: {e}") from e


def _said(verdict: Verdict | Unscorable) -> dict[str, Any]:
    if isinstance(verdict, Verdict):
        return {"winner": verdict.winner, "consistent": verdict.consistent, "said": list(verdict.said)}
    return {"winner": None, "consistent": None, "said": [verdict.reason]}


def _rates(verdicts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of the questions with a verdict: won (a tie is half), tied, and said alike in both orders; of all: those without a verdict."""
    known = [v for v in verdicts if v["winner"]]
    return {
        "win_rate": interval([WORTH[v["winner"]] for v in known], shares=True),
        "ties": interval([float(v["winner"] == "tie") for v in known], shares=True),
        "consistent": interval([float(v["consistent"]) for v in known], shares=True),
        "unscorable": interval([float(not v["winner"]) for v in verdicts], shares=True),
    }
