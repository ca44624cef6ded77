"""Requests that come one by one, each answered by a call; then a second role judges every call and the whole. Problems of
the family chained_requests.

RL Tango, Zha et al. 2025, "RL Tango: Reinforcing Generator and Verifier Together for Language Reasoning" (arXiv 2505.15034).
The generator makes calls as in training/env/progress.py without notes. Then the verifier is shown them and says

    <steps>right wrong</steps><final>wrong</final>

one word per call, and one for all. No label of a step is given to anybody: the verifier is paid for its last word alone,

    reward_verifier  = [final word is what the outcome is] + format [as many words as calls, and a final one]
    reward_generator = value of the score = [all calls right]

and the reward of the generator's k-th turn is the verifier's word for it, +1 or -1 (0 if it did not say one word per call).
A turn of the generator without a call ends the episode with 0, and nobody judges it.

Parts: `task`, `calls_right`, `reward_generator`, and of judged episodes `reward_verifier`, `final` (its last word is right),
`located` (share of calls that it judged as they are).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from training.env.progress import CALL, Progress, progress

TOOLS = "add, subtract, multiply; then one judgement of all calls"
BUDGETS = ()
ENDS = "the judgement; a turn without a call"
GIVES = (
    "task",
    "calls_right",
    "answered",
    "reward_generator",
    "reward_verifier",
    "final",
    "located",
    "turn_reward",
)
WORDS = {"right": 1.0, "wrong": -1.0}
_STEPS = re.compile(r"<steps>\s*((?:right|wrong)(?:\s+(?:right|wrong))*)\s*</steps>")
_FINAL = re.compile(r"<final>\s*(right|wrong)\s*</final>")


@dataclass(frozen=True)
class Overseen:
    calls: Progress
    format: float

    roles = ("generator", "verifier")

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        state, begun = self.calls.start(problem, tools)
        return {**state, "speaker": "generator", "made": [], "outcome": None}, begun

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        if state["speaker"] == "verifier":
            return [], True, self._judged(state, text)
        heard, over, score = self.calls.step(state, text)
        state.pop("step_reward", None)  # the truth, which only the program knows
        if not over:
            state["made"].append(text)
            return list(heard), False, None
        assert isinstance(score, Scored)
        known = {x: score.parts[x] for x in ("task", "calls_right", "answered")}
        if not score.parts["answered"]:
            return [], True, Scored(value=0.0, parts={**known, "reward_generator": 0.0})
        state["made"].append(text)
        state["speaker"], state["outcome"] = "verifier", known
        calls = " ".join(
            f"{request} {call}" for request, call in zip(state["asked"], map(_call, state["made"]), strict=True)
        )
        return [Message(role="user", content=f"Is each call what was requested, and all? {calls}")], False, None

    def _judged(self, state: dict, text: str) -> Scored:
        steps, final = _STEPS.search(text), _FINAL.search(text)
        words = steps[1].split() if steps else []
        formed = len(words) == len(state["right"])
        task = state["outcome"]["task"]
        known = final is not None and (final[1] == "right") == (task == 1.0)
        state["turn_rewards"] = [*([WORDS[w] for w in words] if formed else [0.0] * len(state["right"])), 0.0]
        located = (
            [float((w == "right") == (r == 1.0)) for w, r in zip(words, state["right"], strict=True)] if formed else []
        )
        return Scored(
            value=task,
            parts={
                **state["outcome"],
                "reward_generator": task,
                "reward_verifier": float(known) + self.format * float(formed and final is not None),
                "final": float(known),
                "located": sum(located) / len(located) if located else 0.0,
            },
        )


def _call(text: str) -> str:
    """The call of a turn, as the verifier is shown it."""
    call = CALL.search(text)
    assert call is not None
    return f"{call[1]}({call[2]}, {call[3]})"


def overseen(*, format: float = 0.1, instructions: str = "") -> Overseen:
    """`format`: what the verifier is paid for one word per call and a last one."""
    return Overseen(
        progress(task=1.0, turn=0.0, form=0.0, replace=False, instructions=instructions),
        format,
    )
