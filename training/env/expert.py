"""One question, one answer, and an expert who may be consulted first: asking costs something, and the policy can later
answer without the expert what it has learned.

EAPO, 2025, "EAPO: Enhancing Policy Optimization with On-Demand Expert Assistance" (arXiv 2509.23730; read from its
abstract).

A turn is `<consult>question</consult>`, answered with what the expert says, or `<answer>text</answer>`, which is scored
by the problem's verifier. The expert is a program that knows the reference and is right about a share `skill` of the
problems, decided by the problem's hash, so that asking twice does not help; about the others the expert has no answer.
Consultations beyond `most` are refused and counted. The reward (annealed_cost) decides what they cost; part `consults`.
`closed`: there is no expert (for evaluation, and for rollouts without help).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored, seed_for
from synth.verify import extract_answer, missing, verify
from training.env import system

TOOLS = "consult"
BUDGETS = ("most",)
ENDS = "an answer; a turn that is neither; a consultation after one was refused"
GIVES = ("consults", "answered", "malformed")
_CONSULT = re.compile(r"<consult>(.*?)</consult>", re.DOTALL)


@dataclass(frozen=True)
class Expert:
    most: int
    skill: float
    closed: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem, "calls": 0, "refused": 0}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        parts = {"consults": float(state["calls"]), "answered": float(answer is not None)}
        if answer is not None:
            score = verify(state["problem"], answer)
            return (
                [],
                True,
                Scored(value=score.value, parts={**score.parts, **parts}) if isinstance(score, Scored) else score,
            )
        if _CONSULT.search(text) is None or state["refused"]:
            return [], True, Scored(value=0.0, parts={**missing(text).parts, **parts, "malformed": 1.0})
        if self.closed or state["calls"] >= self.most:
            state["refused"] += 1
            return [Message(role="tool", content="Nobody is there. Answer yourself.")], False, None
        state["calls"] += 1
        problem = state["problem"]
        knows = seed_for("expert", problem.id) / 2**63 < self.skill
        return [Message(role="tool", content=f"It is {problem.answer}." if knows else "I do not know.")], False, None


def expert(*, most: int = 3, skill: float = 1.0, closed: bool = False, instructions: str = "") -> Expert:
    """An expert who answers at most `most` times; see the head of this file."""
    if not 0 <= skill <= 1:
        raise ValueError(f"expert: skill is {skill}: it is a share, from 0 to 1")
    return Expert(most, skill, closed, instructions)
