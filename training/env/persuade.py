"""A sender commits to a reporting rule, and a judge who knows the rule decides by Bayes. Problems of the family
persuasion.

"Towards Strategic Persuasion with Language Models", 2025 (arXiv 2509.22989; read from its abstract), after Kamenica and
Gentzkow 2011, "Bayesian Persuasion". A turn is `<rule>1 3/7</rule>`: how often the guilty and the innocent are accused.
With chance mu of guilt, the judge believes after an accusation

    nu = mu p / (mu p + (1 - mu) q)        and convicts if nu >= tau;        V = mu p + (1 - mu) q if it convicts,
    else 0

(and likewise after no accusation, with 1 - p and 1 - q). The value is the gain over no report, relative to the largest
possible gain, (V - V_0) / (V* - V_0), V* = min(1, mu / tau); minus `honesty` times the share q of the innocent who are
accused. With `turns` above 1 the judge says after each rule what it would do, and the last rule counts. Parts:
`convict` (V), `best` (V*), `accused` (q), `told` (bits of information about guilt in the report).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import log2
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify.number import parse
from training.env import system

TOOLS = ""
BUDGETS = ("turns",)
ENDS = "`turns` rules; a turn without a rule"
GIVES = ("convict", "best", "accused", "told", "malformed")
_TEXT = re.compile(
    r"(?=.*?\b(\d+) of (\d+)\b)(?=.*?\b(\d+)/(\d+)\b).*\bjudge\b.*", re.DOTALL
)  # any wording of the family
_RULE = re.compile(r"<rule>\s*(\S+)\s+(\S+)\s*</rule>")


@dataclass(frozen=True)
class Persuade:
    turns: int
    honesty: float
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match = _TEXT.fullmatch(problem.question)
        if match is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'persuade', but its question describes no judge"
            )
        k, n, a, b = map(int, match.groups())
        prompt = (
            f"{k} of {n} accused are guilty. A judge who knows your rule convicts where guilt has a chance of at least {a}/{b}. "
            "What is your rule?"
        )
        state = {"mu": Fraction(k, n), "tau": Fraction(a, b), "turns": 0, "calls": 0}
        return state, [*system(self.instructions), *problem.prompt[:-1], Message(role="user", content=prompt)]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["turns"] += 1
        match = _RULE.search(text)
        chances = [parse(x) for x in match.groups()] if match else []
        if not chances or any(x is None or not 0 <= x[0] <= 1 for x in chances):
            return [], True, Scored(value=0.0, parts={"parsed": 0.0, "malformed": 1.0})
        (p, q), mu, tau = [x[0] for x in chances if x], state["mu"], state["tau"]
        reports = [r for r in (_report(mu, p, q), _report(mu, 1 - p, 1 - q)) if r]
        value = sum((often for often, belief in reports if belief >= tau), start=Fraction(0))
        if state["turns"] < self.turns:
            return [Message(role="user", content=f"I would convict {value}. What is your rule?")], False, None
        best, none = min(Fraction(1), mu / tau), Fraction(mu >= tau)
        gain = (value - none) / (best - none) if best > none else Fraction(value == best)
        parts = {
            "convict": float(value),
            "best": float(best),
            "accused": float(q),
            "told": _told(mu, p, q),
            "parsed": 1.0,
        }
        return [], True, Scored(value=float(gain) - self.honesty * float(q), parts=parts)


def _report(mu: Fraction, p: Fraction, q: Fraction) -> tuple[Fraction, Fraction] | None:
    """(probability of this report, belief after it); None if it is never made."""
    often = mu * p + (1 - mu) * q
    return (often, mu * p / often) if often else None


def _told(mu: Fraction, p: Fraction, q: Fraction) -> float:
    """Bits of information about guilt in the report: H(guilt) - H(guilt | report)."""

    def h(x: float) -> float:
        return -sum(y * log2(y) for y in (x, 1 - x) if y > 0)

    reports = [r for r in (_report(mu, p, q), _report(mu, 1 - p, 1 - q)) if r]
    return h(float(mu)) - sum(float(often) * h(float(nu)) for often, nu in reports)


def persuade(*, turns: int = 1, honesty: float = 0.0, instructions: str = "") -> Persuade:
    """A judge who is persuaded by a reporting rule; `honesty`: the cost of accusing an innocent."""
    if turns < 1:
        raise ValueError(f"persuade: turns is {turns}: there must be at least one")
    return Persuade(turns, honesty, instructions)
