"""Think again before the answer counts: a cue replaces the end of the answer, m times.

Budget forcing of "J1: Exploring Simple Test-Time Scaling for LLM-as-a-Judge" (2025), after Muennighoff et al. 2025,
"s1: Simple test-time scaling" (arXiv 2501.19393): when the model ends, a cue such as "Wait" is inserted and it
continues. Here the cue is the next message, since a sampled turn is never changed; the last turn's answer is scored.
The part `waits` counts the cues, `changed` says whether the last answer differs from the first, `gained` by how much
more it scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing, verify
from training.env import system

TOOLS = ""
BUDGETS = ("times",)
ENDS = "the answer after the last cue"
GIVES = ("answered", "waits", "changed", "gained")


@dataclass(frozen=True)
class Wait:
    times: int
    cue: str
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {"problem": problem, "waits": 0, "first": None}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        if state["waits"] < self.times:
            state["waits"] += 1
            state["first"] = extract_answer(text) if state["first"] is None else state["first"]
            return [Message(role="user", content=self.cue)], False, None
        answer = extract_answer(text)
        score = missing(text) if answer is None else verify(state["problem"], answer)
        if isinstance(score, Scored):
            changed = float(state["waits"] > 0 and answer != state["first"])
            before = verify(state["problem"], state["first"]) if changed else score
            gained = score.value - before.value if isinstance(before, Scored) else 0.0
            parts = {
                "answered": float(answer is not None),
                "waits": float(state["waits"]),
                "changed": changed,
                "gained": gained,
            }
            score = Scored(value=score.value, parts={**score.parts, **parts})
        return [], True, score


def wait(*, times: int = 1, cue: str = "Wait.", instructions: str = "") -> Wait:
    """One question, `times` cues to think again, and the last answer scored."""
    return Wait(times, cue, instructions)
