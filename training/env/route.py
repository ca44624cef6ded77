"""A question and a pool of models with prices, any of which may be asked before the answer is given.

Router-R1, Zhang et al. 2025, "Router-R1: Teaching LLMs Multi-Round Routing and Aggregation via Reinforcement Learning"
(arXiv 2506.09033).

A turn is `<search>Name: sub-query</search>`, answered with what that model says, or `<answer>text</answer>`. The prompt
describes the pool by short cards. The models are programs: each is right about a problem with its accuracy in the
problem's family ("*": in any other), decided by the hash of problem and name; otherwise it says nothing useful. A call
costs the price times the number of words of the reply. Parts: `cost`, `routes`, `answered`, `format` (0 after a name
that is not in the pool, or a turn that is neither: the episode ends). The piece route_cost combines them into the
reward.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored, seed_for
from synth.verify import extract_answer, verify
from training.env import system

TOOLS = "search (a model by its name)"
BUDGETS = ("most",)
ENDS = "an answer; a call beyond `most`; a turn that is neither"
GIVES = ("cost", "routes", "answered", "format")
POOL = (
    ("Ada", 1.0, "small, cheap, good at sums", {"integer_arithmetic": 0.9, "*": 0.2}),
    ("Bo", 1.0, "small, cheap, good at lists", {"list_sorting": 0.9, "*": 0.2}),
    ("Cleo", 4.0, "large", {"*": 0.7}),
    ("Dov", 10.0, "largest, expensive", {"*": 0.9}),
)
_ASK = re.compile(r"<search>\s*([\w.-]+)\s*:(.*?)</search>", re.DOTALL)


@dataclass(frozen=True)
class Route:
    most: int
    pool: Mapping[str, tuple[float, str, Mapping[str, float]]]
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        cards = " ".join(f"{name}: {card}, price {price:g}." for name, (price, card, _) in self.pool.items())
        told = f"{self.instructions} You may ask these models: {cards}".strip()
        return {"problem": problem, "calls": 0, "cost": 0.0}, [*system(told), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer, question, problem = extract_answer(text), _ASK.search(text), state["problem"]
        parts = {
            "cost": state["cost"],
            "routes": float(state["calls"]),
            "answered": float(answer is not None),
            "format": 1.0,
        }
        if answer is not None:
            score = verify(problem, answer)
            return (
                [],
                True,
                Scored(value=score.value, parts={**score.parts, **parts}) if isinstance(score, Scored) else score,
            )
        if question is None or question[1] not in self.pool or state["calls"] >= self.most:
            return [], True, Scored(value=0.0, parts={**parts, "format": 0.0})
        state["calls"] += 1
        price, _, accuracy = self.pool[question[1]]
        knows = seed_for("route", problem.id, question[1]) / 2**63 < accuracy.get(
            problem.family, accuracy.get("*", 0.0)
        )
        reply = f"It is {problem.answer}." if knows else "I am not sure."
        state["cost"] += price * len(reply.split())
        return [Message(role="tool", content=reply)], False, None


def route(*, most: int = 4, pool: Sequence[Sequence[Any]] = (), instructions: str = "") -> Route:
    """At most `most` calls. `pool`: [name, price, card, {family: accuracy}] of each model; empty: four built-in models.
    Raises ValueError for a model that is not described in this form."""
    known: dict[str, tuple[float, str, Mapping[str, float]]] = {}
    for entry in pool or POOL:
        if len(entry) != 4 or not isinstance(entry[3], Mapping) or not re.fullmatch(r"[\w.-]+", str(entry[0])):
            raise ValueError(f"route: {entry!r} describes no model: write [name, price, card, {{family: accuracy}}]")
        known[str(entry[0])] = float(entry[1]), str(entry[2]), {str(k): float(v) for k, v in entry[3].items()}
    return Route(most, known, instructions)
