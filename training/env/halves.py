"""Two agents, each of whom sees half of a question, must talk. One policy speaks for both in turn, or one for each
(`rl.policies`: first, second); each agent sees its own conversation.

Optima, Chen et al. 2024, "Optima: Optimizing Effectiveness and Efficiency for LLM-Based Multi-Agent System" (arXiv
2410.08115): agents with different parts of the context exchange messages until one answers. The words of the question
are cut in the middle; agent A has the first half. A turn is a message for the other, or `<answer>text</answer>`, which
ends the episode for both and is scored by the problem's verifier. The other agent gets the message in its own
conversation (`history`, training/env/__init__.py), so every turn is a row, with the reward of the whole episode. The
reward (task_token_readability) decides what messages cost. Parts: `turns`, `message_chars`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, verify
from training.env import system

TOOLS = ""
BUDGETS = ("turns", "longest")
ENDS = "an answer; `turns` turns without one"
GIVES = ("turns", "message_chars", "answered", "malformed")


@dataclass(frozen=True)
class Halves:
    turns: int
    longest: int
    instructions: str

    roles = ("first", "second")

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        words = problem.question.split()
        middle = (len(words) + 1) // 2
        parts = [" ".join(words[:middle]) + " ...", "... " + " ".join(words[middle:])]
        views = [
            [*system(self.instructions), Message(role="user", content=f"Your half of the question: {half}")]
            for half in parts
        ]
        state = {"problem": problem, "views": views, "turns": 0, "calls": 0, "said": 0, "speaker": self.roles[0]}
        return state, list(views[0])

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        speaker = state["turns"] % 2
        state["turns"] += 1
        answer = extract_answer(text)
        parts = {
            "turns": float(state["turns"]),
            "message_chars": float(state["said"]),
            "answered": float(answer is not None),
        }
        if answer is not None:
            score = verify(state["problem"], answer)
            return (
                [],
                True,
                Scored(value=score.value, parts={**score.parts, **parts}) if isinstance(score, Scored) else score,
            )
        if state["turns"] >= self.turns:
            return [], True, Scored(value=0.0, parts={**parts, "parsed": 0.0, "malformed": 0.0})
        state["calls"] += 1
        state["said"] += len(text)
        state["views"][speaker].append(Message(role="assistant", content=text))
        heard = Message(role="user", content=f"The other says: {text[: self.longest]}")
        state["views"][1 - speaker].append(heard)
        state["speaker"] = self.roles[1 - speaker]
        state["history"] = list(state["views"][1 - speaker])
        return [heard], False, None


def halves(*, turns: int = 6, longest: int = 400, instructions: str = "") -> Halves:
    """At most `turns` turns of both together; the other agent sees the first `longest` characters of a message."""
    if turns < 1 or longest < 1:
        raise ValueError(f"halves: turns is {turns} and longest {longest}: both must be at least 1")
    return Halves(turns, longest, instructions)
