"""One question, one answer: the environment of the verifiable families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing, verify
from training.env import system, thinks

TOOLS = ""
BUDGETS = ()
ENDS = "the first turn"
GIVES = ("answered", "think")


@dataclass(frozen=True)
class Single:
    format_reward: float
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        if answer is None:
            return [], True, Scored(value=0.0, parts={**missing(text).parts, "answered": 0.0, "think": thinks(text)})
        score = verify(state["problem"], answer)
        if isinstance(score, Scored):
            value = self.format_reward if score.value <= 0 < self.format_reward else score.value
            score = Scored(value=value, parts={**score.parts, "answered": 1.0, "think": thinks(text)})
        return [], True, score


def single(*, format_reward: float = 0.0, instructions: str = "") -> Single:
    """The model answers once, in `<answer>...</answer>`; the problem's verifier scores it.

    format_reward: value of a wrong answer in the right format. instructions: a system message (empty: none).
    """
    return Single(format_reward, instructions)
