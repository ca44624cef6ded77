"""The model writes a workflow of operators for each question, sees it run, and revises it; the reward is its success
minus its cost.

FlowReasoner, Gao et al. 2025, "FlowReasoner: Reinforcing Query-Level Meta-Agents" (arXiv 2504.15257; read from its
abstract).

A turn is `<plan>generate*3 ensemble</plan>`: operators in order, each with a count. The workflow is run and the reply
states its chance of success; inside <answer> it is final. Operators are programs with known effects on k candidates
that are right with chance p each (p from `accuracy`, by the level of the problem, the last for higher ones), so the
result is a probability and not a draw:

    generate*n   n more candidates                          ensemble   a majority of the candidates (ties: half)
    test*1       keeps a right one, if there is any         review*n   p <- p + (1 - p) fix of every candidate, n times

    R = success - complexity (number of operators) - cost (candidates and reviews)

A plan without a candidate, or one that cannot be read, is malformed: 0. Parts: `success`, `operators`, `runs`,
`format`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer
from training.env import system

TOOLS = "plan (generate, ensemble, test, review)"
BUDGETS = ("rounds", "longest")
ENDS = "a plan in <answer>; `rounds` plans; a plan that cannot be read"
GIVES = ("success", "operators", "runs", "format", "answered")
_PLAN = re.compile(r"<plan>(.*?)</plan>", re.DOTALL)
_STEP = re.compile(r"(generate|ensemble|test|review)(?:\*(\d{1,2}))?")


@dataclass(frozen=True)
class Workflow:
    rounds: int
    longest: int
    complexity: float
    cost: float
    accuracy: tuple[float, ...]
    fix: float
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        level = max(1, int(problem.difficulty.get("level", 1)))
        p = self.accuracy[min(level, len(self.accuracy)) - 1]
        return {"p": p, "rounds": 0, "calls": 0}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["rounds"] += 1
        final, match = extract_answer(text), _PLAN.search(text)
        plan = final if final is not None else match[1] if match else ""
        ran = self.run(plan, state["p"])
        if ran is None:
            return [], True, Scored(value=0.0, parts={"format": 0.0, "answered": float(final is not None)})
        success, operators, runs = ran
        value = success - self.complexity * operators - self.cost * runs
        if final is None and state["rounds"] < self.rounds:
            state["calls"] += 1
            return (
                [
                    Message(
                        role="tool", content=f"It succeeds {success:.2f}, with {operators} operators and {runs} runs."
                    )
                ],
                False,
                None,
            )
        parts = {
            "success": success,
            "operators": float(operators),
            "runs": float(runs),
            "format": 1.0,
            "answered": float(final is not None),
        }
        return [], True, Scored(value=value, parts=parts)

    def run(self, plan: str, p: float) -> tuple[float, int, int] | None:
        """(chance of success, operators, runs of a solver) of a plan on a question that a solver gets right with
        probability p; None for an invalid plan."""
        steps = plan.replace(",", " ").split()
        if not 0 < len(steps) <= self.longest:
            return None
        k, runs = 0, 0
        for word in steps:
            match = _STEP.fullmatch(word)
            if match is None or (match[1] != "generate" and not k):
                return None
            n = int(match[2] or 1)
            if match[1] == "generate":
                k, runs = k + n, runs + n
            elif match[1] == "review":
                p, runs = 1 - (1 - p) * (1 - self.fix) ** n, runs + n * k
            elif match[1] == "ensemble":
                p, k = (
                    sum(
                        comb(k, i) * p**i * (1 - p) ** (k - i) * (0.5 if 2 * i == k else 1.0)
                        for i in range(k + 1)
                        if 2 * i >= k
                    ),
                    1,
                )
            else:
                p, k, runs = 1 - (1 - p) ** k, 1, runs + k
        return (p, len(steps), runs) if k else None


def workflow(
    *,
    rounds: int = 10,
    longest: int = 8,
    complexity: float = 0.02,
    cost: float = 0.02,
    accuracy: Sequence[float] = (0.95, 0.7, 0.55),
    fix: float = 0.3,
    instructions: str = "",
) -> Workflow:
    """At most `rounds` plans of at most `longest` operators; the docstring of this file gives the reward."""
    if not accuracy or not all(0 <= p <= 1 for p in (*accuracy, fix)):
        raise ValueError(
            f"workflow: accuracy {list(accuracy)} and fix {fix} are chances, from 0 to 1, one for each level"
        )
    return Workflow(rounds, longest, complexity, cost, tuple(accuracy), fix, instructions)
