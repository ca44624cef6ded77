"""A pipeline of typed tools, put together one tool at a time: problems of the family tool_pipelines with env "assemble".

OpenAGI, Ge et al. 2023, "OpenAGI: When LLM Meets Domain Experts" (arXiv 2304.04370): a planner writes a sequence of tools under
constraints, so that every name is one of a tool and every type fits, and the reward of the whole plan is what its execution gives.

A turn is the name of a tool, or `done`. With `held` a turn is held to the tools that take what the plan gives so far (and, behind the
first one, `done`), whatever the model would say: every plan fits. Without, a tool that there is not or that does not fit ends the episode
with 0. What the plan gives so far is told after each tool: its type, and no result. The score is that of the verifier pipeline: how
near the results come to the reference's. Parts: `fits`, `tools` (how many).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import verify
from synth.verify.pipeline import MAX_TOOLS, TOOLS as KNOWN, misfit
from training.env import system

TOOLS = ""
BUDGETS = ("most",)
ENDS = "`done`; `most` tools; without `held` a tool that does not fit"
GIVES = ("fits", "tools")
DONE = "done"


@dataclass(frozen=True)
class Assemble:
    most: int
    held: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        if problem.verifier != "pipeline":
            raise ValueError(
                f"problem {problem.id} plays in the environment 'assemble', but is scored by {problem.verifier}: those of the family "
                "tool_pipelines are scored by their pipeline"
            )
        state = {"problem": problem, "plan": []}
        self._offer(state)
        begin = problem.question.split(" Answer with")[0]
        prompt = f"{begin} Say one tool at a time, and {DONE} at the end. Now: text."
        return state, [*system(self.instructions), *problem.prompt[:-1], Message(role="user", content=prompt)]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        plan, tool = state["plan"], text.strip()
        if tool != DONE:
            if misfit([*plan, tool]):
                return [], True, Scored(value=0.0, parts={"fits": 0.0, "tools": float(len(plan))})
            plan.append(tool)
            if len(plan) < self.most:
                self._offer(state)
                return [Message(role="user", content=f"Now: {KNOWN[tool][1]}.")], False, None
        score = verify(state["problem"], " ".join(plan))
        if isinstance(score, Scored):
            score = Scored(value=score.value, parts={"fits": score.parts.get("fits", 0.0), "tools": float(len(plan))})
        return [], True, score

    def _offer(self, state: dict) -> None:
        if self.held:
            state["choices"] = legal(state["plan"])


def legal(plan: list[str]) -> tuple[str, ...]:
    """What may be said behind a plan that fits."""
    now = KNOWN[plan[-1]][1] if plan else "text"
    fits = tuple(name for name, (takes, _, _) in KNOWN.items() if takes == now)
    return (*fits, DONE) if plan else fits


def assemble(*, most: int = 5, held: bool = True, instructions: str = "") -> Assemble:
    """At most `most` tools; the rest is in the head of this file."""
    if not 1 <= most <= MAX_TOOLS:
        raise ValueError(f"assemble: most is {most}: a plan has 1 to {MAX_TOOLS} tools")
    return Assemble(most, held, instructions)
