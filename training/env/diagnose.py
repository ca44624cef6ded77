"""Find a hidden thing by asking questions, within a budget that the prompt states: problems of the family
twenty_questions.

DoctorAgent-RL, Feng et al. 2025, "DoctorAgent-RL: A Multi-Agent Collaborative Reinforcement Learning System for
Multi-Turn Clinical Dialogue" (arXiv 2505.19630): a patient with a record that answers only what is asked. Things are
diseases, properties symptoms.

    R = diagnosis [right] + info (useful questions) + repeated (questions asked before) + invalid (turns that are not
    exactly one question)

A question is useful if the record answers it, it was not asked before, and it leaves fewer candidates. A turn with
several questions, or with neither question nor answer, is invalid, and the reply says so; the budget counts turns. If
it is used up without an answer, the diagnosis is worth 0. With `stated`, the prompt states the budget; `vary` chooses
it between 2 and `budget` by the problem's hash, so that a policy learns to read it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored, seed_for
from synth.verify import extract_answer, verify
from training.env import system

TOOLS = "ask"
BUDGETS = ("budget",)
ENDS = "an answer; `budget` turns without one"
GIVES = ("answered", "right", "turns", "repeated", "invalid", "left", "turn_reward")
_TEXT = re.compile(r"(?=.*?\b((?:\w+: [\w ]+; )+\w+: [\w ]+)).*\bIs it .*", re.DOTALL)  # the things in any wording
_THING = re.compile(r"(\w+): ([\w ]+)")
_ASK = re.compile(r"<ask>\s*(\w+)\s*</ask>")


@dataclass(frozen=True)
class Diagnose:
    diagnosis: float
    info: float
    invalid: float
    repeated: float
    budget: int
    stated: bool
    vary: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match = _TEXT.fullmatch(problem.question)
        if match is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'diagnose', but its question lists no things to tell apart"
            )
        things = {name: frozenset(words.split()) for name, words in _THING.findall(match[1])}
        budget = 2 + seed_for("diagnose", problem.id) % max(1, self.budget - 1) if self.vary else self.budget
        state = {
            "problem": problem,
            "things": things,
            "left": list(things),
            "asked": set(),
            "turns": 0,
            "calls": 0,
            "budget": budget,
        }
        told = f"{match[1]}. Ask one thing a turn, then say which it is" + (
            f"; you have {budget} turns." if self.stated else "."
        )
        return state | {"sum": 0.0, "again": 0, "bad": 0}, [
            *system(self.instructions),
            *problem.prompt[:-1],
            Message(role="user", content=told),
        ]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["turns"] += 1
        answer, questions = extract_answer(text), _ASK.findall(text)
        if answer is not None:
            score = verify(state["problem"], answer)
            return (
                [],
                True,
                self._ended(state, score.value, answered=1.0, **score.parts) if isinstance(score, Scored) else score,
            )
        if len(questions) != 1:
            reply, worth = "Ask one thing.", self.invalid
            state["bad"] += 1
        else:
            reply, worth = self._asked(state, questions[0])
        state["sum"] += worth
        state["step_reward"] = worth
        if state["turns"] >= state["budget"]:
            return [], True, self._ended(state, 0.0, answered=0.0, malformed=0.0)
        return [Message(role="user", content=reply)], False, None

    def _asked(self, state: dict, word: str) -> tuple[str, float]:
        state["calls"] += 1
        if word in state["asked"]:
            state["again"] += 1
            return "You asked that.", self.repeated
        state["asked"].add(word)
        if not any(word in words for words in state["things"].values()):
            return "I cannot say.", 0.0
        has = word in state["things"][state["problem"].answer]
        left = [t for t in state["left"] if (word in state["things"][t]) == has]
        worth = self.info if len(left) < len(state["left"]) else 0.0
        state["left"] = left
        return "yes" if has else "no", worth

    def _ended(self, state: dict, right: float, **parts: float) -> Scored:
        known = {
            "right": right,
            "turns": float(state["turns"]),
            "repeated": float(state["again"]),
            "invalid": float(state["bad"]),
        }
        return Scored(
            value=state["sum"] + self.diagnosis * right, parts={**parts, **known, "left": float(len(state["left"]))}
        )


def diagnose(
    *,
    diagnosis: float = 5.0,
    info: float = 0.5,
    invalid: float = -1.0,
    repeated: float = -0.5,
    budget: int = 10,
    stated: bool = True,
    vary: bool = False,
    instructions: str = "",
) -> Diagnose:
    """At most `budget` turns, including the one that answers; the docstring of this file gives the rewards."""
    if budget < 1:
        raise ValueError(f"diagnose: the budget is {budget} turns: it must be at least 1")
    return Diagnose(diagnosis, info, invalid, repeated, budget, stated, vary, instructions)
