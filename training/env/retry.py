"""Any question, answered again and again: the reply to a wrong answer is a constant sentence, or what the checker finds
wrong with it.

UFO, Liu et al. 2025, "A Simple 'Try Again' Can Elicit Multi-Turn LLM Reasoning" (arXiv 2507.14295).

    R = gamma^t [right at turn t, from 0] - repeat (1 - E / T)         E different answers in T turns

With `checker` the reply to a wrong answer is the explanation of its verifier (its `explain`), as in
Leanabell-Prover-V2, Ji et al. 2025, whose proofs are checked within the rollout; a turn without an answer gets
`feedback`.

The episode ends with the first right answer, or after `most` turns. A turn without an answer is an attempt like any
other. An answer is right if its verdict is 1. Parts: `tries`, `distinct` (E / T), `right`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import explained, extract_answer, missing, verify
from training.env import system

TOOLS = ""
BUDGETS = ("most",)
ENDS = "a right answer; `most` answers"
GIVES = ("tries", "distinct", "right", "answered")


@dataclass(frozen=True)
class Retry:
    most: int
    gamma: float
    repeat: float
    feedback: str
    checker: bool
    missing: float
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem, "said": [], "calls": 0}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        score = missing(text) if answer is None else verify(state["problem"], answer)
        if not isinstance(score, Scored):
            return [], True, score
        state["said"].append(" ".join(answer.split()).casefold() if answer is not None else None)
        right, turns = score.value == 1.0, len(state["said"])
        if not right and turns < self.most:
            state["calls"] += 1
            told = explained(state["problem"], answer) if self.checker and answer is not None else self.feedback
            return [Message(role="user", content=told)], False, None
        distinct = len(set(state["said"])) / turns
        value = self.gamma ** (turns - 1) * right - self.repeat * (1 - distinct) - self.missing * (answer is None)
        parts = {
            "tries": float(turns),
            "distinct": distinct,
            "right": float(right),
            "answered": float(answer is not None),
        }
        return [], True, Scored(value=value, parts={**score.parts, **parts})


def retry(
    *,
    most: int = 5,
    gamma: float = 0.5,
    repeat: float = 0.1,
    feedback: str = "Try again.",
    checker: bool = False,
    missing: float = 0.0,
    instructions: str = "",
) -> Retry:
    """At most `most` answers; a right one scores `gamma` to the power of the number of answers before it, minus
    `repeat` times the share of repeated answers, minus `missing` if the last turn gave no answer.

    checker: whether the reply says what the problem's verifier finds wrong, instead of `feedback`; a verifier that
    cannot explain is an error.
    """
    if most < 1:
        raise ValueError(f"retry: most is {most}: at least one answer must be allowed")
    return Retry(most, gamma, repeat, feedback, checker, missing, instructions)
