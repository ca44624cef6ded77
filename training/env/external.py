"""Episodes of external environments, which run in separate processes (docs/environments.md). Their observations go to
the model, the model's text goes to them, and the score is the sum of the rewards of all turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored, Unscorable

TOOLS = ""
BUDGETS = ("turns",)
ENDS = "what the environment says; the last turn of the budget"
GIVES = ("turns", "spent", "turn_reward")


@dataclass(frozen=True, kw_only=True)
class External:
    turns: int

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        """Raises LookupError if the player has nothing that starts external environments."""
        if "external" not in tools:
            raise LookupError(
                f"problem {problem.id} is of an external environment, and the player was not given `external`"
            )
        state: dict[str, Any] = {"calls": 0, "value": 0.0}
        begun = tools["external"](problem)
        if isinstance(begun, Unscorable):
            return state | {"over": begun}, list(problem.prompt)
        state["episode"] = begun
        return state, list(begun.messages)

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["calls"] += 1
        reply = state["episode"].turn(text)
        if isinstance(reply, Unscorable):
            return [], True, reply
        messages, over, reward = reply
        state["value"] += reward
        state["step_reward"] = reward
        spent = not over and state["calls"] >= self.turns
        if over or spent:
            return [], True, Scored(value=state["value"], parts={"turns": float(state["calls"]), "spent": float(spent)})
        return messages, False, None


def external(*, turns: int = 64) -> External:
    """An episode of an external environment; the sum of its rewards is the score.

    Args:
        turns: the most turns of the model; after them the episode ends with the rewards so far

    Raises ValueError for fewer than one turn.
    """
    if turns < 1:
        raise ValueError(f"the environment external has {turns} turns: it needs one at least")
    return External(turns=turns)
