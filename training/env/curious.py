"""Twenty questions in which every turn is rewarded for what it reveals about the user. Problems of the family
twenty_questions.

CURIO, Wan et al. 2025, "Enhancing Personalized Multi-Turn Dialogue with Curiosity Reward" (arXiv 2504.03206). The
things are types of users; b_t is the belief of an exact observer after turn t, who starts from a uniform belief and
rules out types that contradict an answer: b_t(u) = 1 / n_t on the n_t types that are left; u* is the true one.

    accuracy       gamma b_{t+1}(u*) - b_t(u*)               (a potential: with gamma 1 the turns add up to b_T - b_0)
    log_accuracy   gamma log b_{t+1}(u*) - log b_t(u*)
    entropy        H(b_t) - gamma H(b_{t+1})
    information    KL(b_{t+1} || b_t)

The reward of a turn is `weight` times that, plus what the environment `ask` pays for it; the score of the episode is
that of `ask`, with the part `belief`. With uniform beliefs and answers without noise, entropy and log_accuracy agree.
Leaves out a learned observer, which the last two rewards could exploit by fooling it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from training.env.ask import Ask, ask

TOOLS = "ask"
BUDGETS = ("most",)
ENDS = "a name said; a question beyond `most`; a turn that is neither"
GIVES = ("answered", "right", "calls", "left", "belief", "turn_reward")
Variant = Literal["accuracy", "log_accuracy", "entropy", "information"]


@dataclass(frozen=True)
class Curious:
    inner: Ask
    variant: Variant
    weight: float
    gamma: float

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return self.inner.start(problem, tools)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        before, calls_before = len(state["left"]), state["calls"]
        messages, over, score = self.inner.step(state, text)
        after = len(state["left"])
        if state["calls"] > calls_before:  # a turn without a question reveals nothing
            state["step_reward"] = state.get("step_reward", 0.0) + self.weight * self._gain(before, after)
        if isinstance(score, Scored):
            score = replace(score, parts={**score.parts, "belief": 1 / after})
        return messages, over, score

    def _gain(self, before: int, after: int) -> float:
        if self.variant == "accuracy":
            return self.gamma / after - 1 / before
        if self.variant == "log_accuracy":
            return math.log(before) - self.gamma * math.log(after)
        return math.log(before) - (self.gamma if self.variant == "entropy" else 1.0) * math.log(after)


def curious(
    *,
    variant: Variant = "accuracy",
    weight: float = 1.0,
    gamma: float = 0.99,
    success: float = 1.0,
    most: int = 5,
    reveal: int = 0,
    instructions: str = "",
) -> Curious:
    """At most `most` questions, each rewarded for its information gain; `success`: reward for the right name."""
    inner = ask(success=success, budget=most, most=most, reveal=reveal, instructions=instructions)
    return Curious(inner, variant, weight, gamma)
