"""Two answers to one question; the second agent has seen the first answer, and both get the sum of the scores as
reward.

After CORY, Ma et al. 2024, "Coevolving with the Other You: Fine-Tuning LLM with Sequential Cooperative Multi-Agent
Reinforcement Learning" (arXiv 2410.06101): a pioneer answers, an observer reads question and answer and answers too,
the reward of both is r(pioneer) + r(observer), and they exchange roles. If one policy plays both in one conversation,
the roles are exchanged at every step; with `rl.policies` each role has a policy. The part `observer` is the score of
the observer's answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing, verify
from training.env import system

TOOLS = ""
BUDGETS = ()
ENDS = "the second answer"
GIVES = ("answered", "pioneer", "observer")


@dataclass(frozen=True)
class SecondLook:
    weight: float
    instructions: str

    roles = ("pioneer", "observer")

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem, "values": [], "speaker": "pioneer"}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        score = missing(text) if answer is None else verify(state["problem"], answer)
        if not isinstance(score, Scored):
            return [], True, score
        state["values"].append(score.value)
        if len(state["values"]) == 1:
            state["speaker"] = "observer"
            shown = answer if answer is not None else "nothing"
            return (
                [Message(role="user", content=f"{state['problem'].question} Somebody says {shown}. What do you say?")],
                False,
                None,
            )
        pioneer, observer = state["values"]
        value = self.weight * (pioneer + observer)
        return (
            [],
            True,
            Scored(
                value=value,
                parts={**score.parts, "answered": float(answer is not None), "pioneer": pioneer, "observer": observer},
            ),
        )


def second_look(*, weight: float = 1.0, instructions: str = "") -> SecondLook:
    """A pioneer and an observer with one reward: `weight` times the sum of both (0.5: their mean)."""
    return SecondLook(weight, instructions)
