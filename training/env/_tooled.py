"""Problems with tools: calls as JSON, several at once, within budgets. Hosted by the pieces `tools`, `calculator`,
`python` and `sql`.

A turn is calls (training/env/tool), answered by a tool message each, or `<answer>text</answer>`, which ends the episode
and is scored by the problem's verifier; if a turn has both, the answer counts. The model is told about every error of a
call and may fix it, unless `broken` is "end": then a call that cannot be read, or a turn without call or answer, ends
the episode with score 0 (`malformed`). When a budget is used up the model is told to answer, and a turn that calls
again ends the episode with score 0 (`spent`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, verify
from training.env import system
from training.env.tool import ERROR, Tool, calls, instructions, use

LAST = "(No more calls: answer now.)"
NEITHER = f"{ERROR}this turn holds neither a call nor <answer>...</answer>"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of an episode.

    turns      of the model, including the one that answers
    calls      of all tools together; parallel: calls of one turn, further ones are not made
    result     characters of one result, the rest is cut; context: characters of all results together
    cost       of all calls in the tools' own unit; 0: no limit
    """

    turns: int = 8
    calls: int = 16
    parallel: int = 4
    result: int = 2000
    context: int = 12_000
    cost: float = 0.0

    def __post_init__(self) -> None:
        for name in ("turns", "calls", "parallel", "result", "context"):
            if getattr(self, name) < 1:
                raise ValueError(f"the budget {name} is {getattr(self, name)}: it must be at least 1")
        if self.cost < 0:
            raise ValueError(f"the budget cost is {self.cost}: it must be 0 (no limit) or more")


@dataclass(frozen=True, kw_only=True)
class Tooled:
    """makers: tool name -> f(problem, tools) -> Tool, or None for a tool that the player already has. servers:
    commands of tool servers, all of whose tools are used; the code that makes the player starts them. describe: whether the
    system message lists tools and form."""

    makers: Mapping[str, Callable[[Problem, Mapping[str, Any]], Tool] | None]
    budget: Budget
    servers: tuple[str, ...] = ()
    broken: Literal["tell", "end"] = "tell"
    describe: bool = True
    instructions: str = ""

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        """Raises LookupError for a tool that the player does not have."""
        mine: dict[str, Tool] = {}
        for name, make in self.makers.items():
            tool = make(problem, tools) if make is not None else tools.get(name)
            if not isinstance(tool, Tool):
                raise LookupError(
                    f"problem {problem.id} is to be played with the tool {name!r}, which the player was not given"
                )
            mine[name] = tool
        for command in self.servers:
            if command not in tools:
                raise LookupError(
                    f"problem {problem.id} is to be played with the tool server {command!r}, which the player was not given"
                )
            mine |= {t.name: t for t in tools[command]}
        told = "\n".join(
            x for x in (self.instructions, instructions(list(mine.values())) if self.describe else "") if x
        )
        state = {
            "problem": problem,
            "tools": mine,
            "turns": 0,
            "calls": 0,
            "failed": 0,
            "context": 0,
            "cost": 0.0,
            "used": {},
        }
        return state, [*system(told), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["turns"] += 1
        answer, requested = extract_answer(text), calls(text)
        if answer is not None:
            score = verify(state["problem"], answer)
            return (
                [],
                True,
                Scored(value=score.value, parts={**score.parts, **self._parts(state, 1.0)})
                if isinstance(score, Scored)
                else score,
            )
        if self.broken == "end" and (not requested or any(c.broken for c in requested)):
            return [], True, Scored(value=0.0, parts={**self._parts(state, 0.0), "malformed": 1.0})
        if self._spent(state):
            return [], True, Scored(value=0.0, parts={**self._parts(state, 0.0), "spent": 1.0, "malformed": 0.0})
        messages = [Message(role="tool", content=x) for x in self._results(state, requested)] or [
            Message(role="tool", content=NEITHER)
        ]
        if self._spent(state, ahead=1):
            messages[-1] = Message(role="tool", content=f"{messages[-1].content}\n{LAST}")
        return messages, False, None

    def _results(self, state: dict, requested: list) -> list[str]:
        """The text of each result; calls beyond a budget are refused."""
        results, cost = [], state["cost"]
        for call in requested[: min(self.budget.parallel, self.budget.calls - state["calls"])]:
            cost += state["tools"][call.name].cost if call.name in state["tools"] else 0.0
            if self.budget.cost and cost > self.budget.cost:
                break
            results.append(call)
            state["cost"] = cost
        state["calls"] += len(results)
        texts = []
        for call, result in zip(results, use(results, state["tools"], most=self.budget.result), strict=True):
            state["failed"] += result.failed
            if not result.failed:
                state["used"][call.name] = state["used"].get(call.name, 0) + 1
            texts.append(result.text[: max(0, self.budget.context - state["context"])])
            state["context"] += len(texts[-1])
        left = len(requested) - len(results)
        return texts + (
            [f"{ERROR}the last {left} of {len(requested)} calls were not made: a budget is used up"] if left else []
        )

    def _spent(self, state: Mapping[str, Any], ahead: int = 0) -> bool:
        """Whether no further call may be made; `ahead`: whether that holds in the turn after this one."""
        b = self.budget
        cheapest = min((t.cost for t in state["tools"].values()), default=0.0)
        return (
            state["turns"] + ahead >= b.turns
            or state["calls"] >= b.calls
            or state["context"] >= b.context
            or (b.cost > 0 and state["cost"] + cheapest > b.cost)
        )

    def _parts(self, state: Mapping[str, Any], answered: float) -> dict[str, float]:
        counts = {k: float(state[k]) for k in ("turns", "calls", "failed", "cost")}
        return {**counts, "answered": answered, **{f"used_{name}": float(n) for name, n in state["used"].items()}}
