"""Requests that come one by one, each answered by a call, with the model's own notes in place of the conversation.
Problems of the family chained_requests.

PARL-MT, 2025, "PARL-MT: Learning to Call Functions in Multi-Turn Conversation with Progress Awareness" (arXiv
2509.23206; read from its abstract).

A turn is `<progress>notes</progress><call>add(3, 4)</call>`. The call is made; with `replace`, the model then sees only
its notes, the result, and the next request: it loses what it did not write down, and the context of a turn does not
grow (`notes` characters at most). Each such turn is a separate row (`history`, training/env/__init__.py), trained with
the reward of the whole episode, so notes are rewarded for what later turns achieve with them.

    R = task [all calls right] + turn mean(calls that are right) + form mean(turns with notes)

A call is right if it applies the requested operation to the requested values. A turn without a call ends the episode.
Parts: `task`, `calls_right`, `noted`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from training.env import system

TOOLS = "add, subtract, multiply"
BUDGETS = ("notes",)
ENDS = "the last request; a turn without a call"
GIVES = ("task", "calls_right", "noted", "answered", "turn_reward")
_REQUEST = re.compile(r"Request (\d+): (add|subtract|multiply) (\d+|result \d+) and (\d+|result \d+)\.")
_NOTES = re.compile(r"<progress>(.*?)</progress>", re.DOTALL)
CALL = re.compile(r"<call>\s*(add|subtract|multiply)\(\s*(-?\d{1,9})\s*,\s*(-?\d{1,9})\s*\)\s*</call>")


@dataclass(frozen=True)
class Progress:
    task: float
    turn: float
    form: float
    replace: bool
    notes: int
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        requests = _REQUEST.findall(problem.question)
        if not requests:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'progress', but its question makes no requests"
            )
        gold: list[tuple[str, int, int]] = []
        values: list[int] = []
        for _, name, *arguments in requests:
            a, b = (values[int(x.split()[1]) - 1] if x.startswith("result") else int(x) for x in arguments)
            gold.append((name, a, b))
            values.append(_apply(name, a, b))
        lines = [f"Request {n}: {name} {a} and {b}." for n, name, a, b in requests]
        state = {"asked": lines, "gold": gold, "right": [], "noted": [], "calls": 0}
        return state, [*system(self.instructions), Message(role="user", content=lines[0])]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        call, notes = CALL.search(text), _NOTES.search(text)
        state["noted"].append(float(notes is not None))
        if call is None:
            return [], True, self._score(state)
        name, a, b = call[1], int(call[2]), int(call[3])
        state["right"].append(float((name, a, b) == state["gold"][state["calls"]]))
        state["step_reward"] = state["right"][-1]
        state["calls"] += 1
        if state["calls"] == len(state["gold"]):
            return [], True, self._score(state)
        result = Message(role="tool", content=f"result {state['calls']} is {_apply(name, a, b)}")
        request = Message(role="user", content=state["asked"][state["calls"]])
        if self.replace:
            kept = " ".join(notes[1].split())[: self.notes] if notes else ""
            told = f"Your notes: {kept or 'none'}. {result.content}. {request.content}"
            state["history"] = [*system(self.instructions), Message(role="user", content=told)]
        return [result, request], False, None

    def _score(self, state: dict) -> Scored:
        n = len(state["gold"])
        right, noted = sum(state["right"]) / n, sum(state["noted"]) / len(state["noted"])
        task = float(right == 1.0)
        value = self.task * task + self.turn * right + self.form * noted
        return Scored(
            value=value,
            parts={"task": task, "calls_right": right, "noted": noted, "answered": float(state["calls"] == n)},
        )


def _apply(name: str, a: int, b: int) -> int:
    return a + b if name == "add" else a - b if name == "subtract" else a * b


def progress(
    *,
    task: float = 1.0,
    turn: float = 0.5,
    form: float = 0.1,
    replace: bool = True,
    notes: int = 200,
    instructions: str = "",
) -> Progress:
    """`replace`: the model's notes replace the conversation; without it the whole conversation is kept."""
    return Progress(task, turn, form, replace, notes, instructions)
