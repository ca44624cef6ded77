"""A solver whose curve of success is known: what the loop's control law is tested against.

    p(family, level) = 1 / (1 + exp(steepness * (level - skill(family))))         skill = start + gain * log2(1 +
    attempts at the family)

It is right with probability p, else it gives the right answer of another problem of the family (wrong here: it is
checked), or, with probability `garbled`, a text without an answer. The skill of a family named in `weak` is `handicap`
lower and gains nothing, which is what a search for weak skills must find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from synth.types import Problem, Scored, seed_for
from synth.verify import CLOSE, OPEN, verify


def scripted(
    *,
    start: float = 2.0,
    gain: float = 0.1,
    steepness: float = 1.5,
    weak: list[str] | None = None,
    handicap: float = 2.5,
    garbled: float = 0.0,
    seed: int = 0,
) -> Scripted:
    """A solver that has practised nothing yet; the knobs are those of the formula above."""
    return Scripted(start, gain, steepness, tuple(weak or ()), handicap, garbled, seed)


@dataclass
class Scripted:
    """The solver. What it has practised is in `state()`."""

    start: float
    gain: float
    steepness: float
    weak: tuple[str, ...]
    handicap: float
    garbled: float
    seed: int
    practice: dict[str, int] = field(default_factory=dict)  # family -> attempts so far: the state of the solver
    others: dict[str, list[str]] = field(default_factory=dict)  # family -> answers seen, to be wrong with

    def success(self, family: str, level: float) -> float:
        """The true probability of success now."""
        gained = self.gain * math.log2(1 + self.practice.get(family, 0))
        skill = self.start + (-self.handicap if family in self.weak else gained)
        return 1 / (1 + math.exp(min(50.0, max(-50.0, self.steepness * (level - skill)))))

    def __call__(self, problems: Sequence[Problem], samples: int, *seed: Any) -> list[list[str]]:
        """`samples` texts for each problem. The curve moves after the call, so that all attempts of a call share it."""
        out = []
        for place, problem in enumerate(problems):
            rng = Random(seed_for(self.seed, "scripted", *seed, problem.id, place))
            p = self.success(problem.family, problem.difficulty["level"])
            wrong = self._wrong(problem)
            texts = []
            for _ in range(samples):
                draw = rng.random()
                texts.append(
                    "I do not know."
                    if rng.random() < self.garbled
                    else f"{OPEN}{problem.answer if draw < p else wrong}{CLOSE}"
                )
            out.append(texts)
        for problem in problems:
            self.practice[problem.family] = self.practice.get(problem.family, 0) + samples
            kept = self.others.setdefault(problem.family, [])
            if problem.answer not in kept:
                self.others[problem.family] = [*kept[-7:], problem.answer]
        return out

    def _wrong(self, problem: Problem) -> str:
        """An answer of the right form that is wrong for this problem."""
        for answer in (*reversed(self.others.get(problem.family, [])), "0", "1", "-1"):
            score = verify(problem, answer)
            if isinstance(score, Scored) and score.value < 1.0 and score.parts.get("parsed", 1.0):
                return answer
        return "0"

    def state(self) -> dict[str, Any]:
        return {"practice": self.practice, "others": self.others}

    def load_state(self, state: dict[str, Any]) -> None:
        self.practice, self.others = dict(state["practice"]), {k: list(v) for k, v in state["others"].items()}
