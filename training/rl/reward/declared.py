"""An objective that is declared over the turns of a conversation: additive, by an automaton, in temporal logic, or of the whole group.

"On The Expressivity of Objective-Specification Formalisms in Reinforcement Learning", Subramani et al. 2023 (arXiv
2310.11840). L_t are the names that hold in turn t: of the tags that the model writes there, and `right` in the last turn where
the reward so far is at least 0.5.

    markov            R = sum_t sum_{p in L_t} weights[p]
    reward_machine    R = sum_t of the rewards of the rows taken; a row [state, name, next, reward] is taken where `name` is in L_t, the
                      first such row of the state; without one the state stays. It starts in the state of the first row
    ltl               R = [L_1 ... L_T satisfies `formula`]: names, true, false, ! & | ->, X (there is a next turn, and in it), N (in
                      the next turn, if any), F, G, U; over finite traces (De Giacomo and Vardi 2013)
    outer_nonlinear   the group's mean J_k of x_k = share of the turns in which name k of `over` holds has the utility
                      u(J) = sum_k log(J_k + eps) or min_k J_k; R = sum_k x_k du/dJ_k, its first-order term

The default objective is the right answer alone. Shapes: one reward per rollout in (replaced) and out; unscorable stays
NaN. Raises ValueError for an objective that cannot be read. Regularised objectives are the stage's `regularisers`. Leaves out
limit averages, orders of trajectories and policies, and the translation of one formalism into another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from training.types import Group, Rewards, Rollout

Trace = Sequence[Set[str]]
Holds = Callable[[Trace, int], bool]
_TAG = re.compile(r"<(\w+)(?:\s*/>|>.*?</\1>)", re.DOTALL)
_TOKEN = re.compile(r"\s*(->|[!&|()]|\w+)")
_RIGHT = 0.5


def declared(
    groups: Sequence[Group],
    rewards: Rewards,
    state: dict,
    rng: np.random.Generator,
    *,
    spec: Literal["markov", "reward_machine", "ltl", "outer_nonlinear"] = "ltl",
    formula: str = "F right",
    weights: dict | None = None,
    machine: tuple = (),
    over: tuple = (),
    utility: Literal["log", "min"] = "log",
    eps: float = 0.01,
) -> Rewards:
    weights, machine, over = (
        weights or {"right": 1.0},
        machine or (("start", "right", "end", 1.0),),
        over or ("right",),
    )
    if not formula:
        raise ValueError("declared: the formula is empty: write one, such as 'F right'")
    out = []
    for group, r in zip(groups, rewards, strict=True):
        traces = [trace(rollout, x) for rollout, x in zip(group.rollouts, r, strict=True)]
        if spec == "outer_nonlinear":
            paid = _outer(traces, ~np.isnan(r), over, utility, eps)
        elif spec == "ltl":
            holds = read(formula)
            paid = [float(holds(t, 0)) for t in traces]
        elif spec == "reward_machine":
            paid = [run(machine, t) for t in traces]
        else:
            paid = [sum(float(weights.get(p, 0.0)) for names in t for p in names) for t in traces]
        out.append(np.where(np.isnan(r), np.nan, np.array(paid, dtype=np.float64)))
    return out


def trace(rollout: Rollout, reward: float) -> list[set[str]]:
    """L_1 ... L_T: one set of names per turn of the model."""
    turns = [m.content for m in rollout.info.get("messages", ()) if m.role == "assistant"] or [rollout.text]
    names = [set(_TAG.findall(text)) for text in turns]
    if reward >= _RIGHT:
        names[-1].add("right")
    return names


def run(machine: Sequence[Sequence], names: Trace) -> float:
    """The reward of a trace under an automaton with rewards."""
    if any(len(row) != 4 for row in machine):
        raise ValueError(
            "declared: a row of the machine is [state, name, next state, reward]: give all four in every row"
        )
    at, total = machine[0][0], 0.0
    for here in names:
        row = next((row for row in machine if row[0] == at and row[1] in here), None)
        if row is not None:
            at, total = row[2], total + float(row[3])
    return total


def _outer(traces: Sequence[Trace], known: np.ndarray, over: Sequence[str], utility: str, eps: float) -> np.ndarray:
    x = np.array([[np.mean([p in names for names in t]) for p in over] for t in traces])
    if not known.any():
        return np.zeros(len(x))
    mean = x[known].mean(0)
    slope = 1 / (mean + eps) if utility == "log" else np.eye(len(over))[int(mean.argmin())]
    return x @ slope


def _join(how: Callable[[Iterable[bool]], bool], a: Holds, b: Holds) -> Holds:
    return lambda w, t: how(x(w, t) for x in (a, b))


@lru_cache
def read(formula: str) -> Holds:
    """(trace, turn) -> whether a formula holds there. ! X N F G bind strongest, then U, &, |, ->. Raises ValueError for
    a formula that cannot be parsed."""
    tokens, at, text = [], 0, formula.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(
                f"declared: the formula {formula!r} has {text[at:].strip()[0]!r} in it: it knows names, ! & | -> X N F G U and brackets"
            )
        tokens.append(token[1])
        at = token.end()
    reader = _Reader(formula, tokens)
    whole = reader.implies()
    if tokens:
        raise reader.lost()
    return whole


_UNARY: dict[str, Callable[[Holds], Holds]] = {
    "!": lambda a: lambda w, t: not a(w, t),
    "X": lambda a: lambda w, t: t + 1 < len(w) and a(w, t + 1),
    "N": lambda a: lambda w, t: t + 1 >= len(w) or a(w, t + 1),
    "F": lambda a: lambda w, t: any(a(w, k) for k in range(t, len(w))),
    "G": lambda a: lambda w, t: all(a(w, k) for k in range(t, len(w))),
}


@dataclass
class _Reader:
    """A recursive-descent parser, loosest operators first; `tokens` are those not read yet."""

    formula: str
    tokens: list[str]

    def take(self, *wanted: str) -> str | None:
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in wanted else None

    def lost(self) -> ValueError:
        where = f"at {self.tokens[0]!r}" if self.tokens else "at its end"
        return ValueError(
            f"declared: the formula {self.formula!r} cannot be read {where}: check its brackets and operators"
        )

    def implies(self) -> Holds:
        a = self.either()
        if self.take("->"):
            b = self.implies()
            return lambda w, t: not a(w, t) or b(w, t)
        return a

    def either(self) -> Holds:
        a = self.both()
        while self.take("|"):
            a = _join(any, a, self.both())
        return a

    def both(self) -> Holds:
        a = self.until()
        while self.take("&"):
            a = _join(all, a, self.until())
        return a

    def until(self) -> Holds:
        a = self.unary()
        if self.take("U"):
            b = self.until()
            return lambda w, t: any(b(w, k) and all(a(w, i) for i in range(t, k)) for k in range(t, len(w)))
        return a

    def unary(self) -> Holds:
        sign = self.take(*_UNARY)
        return self.atom() if sign is None else _UNARY[sign](self.unary())

    def atom(self) -> Holds:
        if self.take("("):
            a = self.implies()
            if not self.take(")"):
                raise self.lost()
            return a
        if not self.tokens or not self.tokens[0][0].isalnum() or self.tokens[0] == "U":
            raise self.lost()
        name = self.tokens.pop(0)
        return (lambda w, t: name == "true") if name in ("true", "false") else (lambda w, t: name in w[t])
