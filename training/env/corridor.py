"""A corridor with parcels, you and a partner who follows a rule: problems of the family errands with env "corridor".

LLM-Coordination, Agashe et al. 2023, "LLM-Coordination: Evaluating and Analyzing Multi-agent Coordination Abilities in Large
Language Models" (arXiv 2310.03903). A turn is <move>left</move>, <move>right</move> or <move>stay</move>; the partner moves at the same time, and
what either stands on is collected. After each step the state is told. The score is the fewest steps in which the two can
do it over those that they took, 0 where parcels are left after `slack` times the fewest. `partner` puts another partner in the
place of the problem's (the fewest steps are then his), `told` false takes the sentence about his rule out of the question. With
`check` a move that is none, or leads out of the corridor, is refused with those that are legal, and no time passes; without, the game
ends there with 0. Parts: `steps`, `fewest`, `illegal` (how many such moves), `collected` (share of the parcels).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from synth.verify._corridor import MOVES, SAID, TEXT, fewest, moved
from training.env import system

TOOLS = "move"
BUDGETS = ("slack",)
ENDS = "all is collected; more than `slack` times the fewest steps; without `check` a move that is none; with it as many refusals as steps may be taken"
GIVES = ("steps", "fewest", "illegal", "collected")
_MOVE = re.compile(r"<move>\s*(left|right|stay)\s*</move>")
Partner = Literal["", "nearest", "lowest", "highest", "still"]


@dataclass(frozen=True)
class Corridor:
    slack: float
    partner: Partner
    told: bool
    check: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match, rules = TEXT.fullmatch(problem.question), {hint: rule for rule, hint in SAID.items()}
        if match is None or match[5] not in rules:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'corridor', but its question shows no corridor: those of the family errands do"
            )
        cells, you, partner = (int(match[i]) for i in (1, 2, 3))
        left = tuple(int(x) for x in match[4].split())
        rule = self.partner or rules[match[5]]
        best = fewest(cells, (you, partner, left), rule)
        state = {
            "cells": cells,
            "now": (you, partner, left),
            "rule": rule,
            "fewest": best,
            "limit": int(self.slack * best),
            "parcels": len(left),
            "steps": 0,
            "illegal": 0,
            "calls": 0,
        }
        hint = f" {match[5]}." if self.told and not self.partner else ""
        prompt = f"A corridor of {cells} cells.{hint} {_told(state)}"
        return state, [*system(self.instructions), *problem.prompt[:-1], Message(role="user", content=prompt)]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match, you = _MOVE.search(text), state["now"][0]
        legal = [name for name, m in MOVES.items() if 1 <= you + m <= state["cells"]]
        state["calls"] += 1
        if match is None or match[1] not in legal:
            state["illegal"] += 1
            if not self.check or state["illegal"] >= state["limit"]:
                return [], True, self._ended(state, 0.0)
            return [Message(role="user", content=f"You may: {' '.join(legal)}.")], False, None
        state["steps"] += 1
        state["now"] = moved(state["now"], state["rule"], MOVES[match[1]])
        if not state["now"][2]:
            return [], True, self._ended(state, state["fewest"] / state["steps"])
        if state["steps"] >= state["limit"]:
            return [], True, self._ended(state, 0.0)
        return [Message(role="user", content=_told(state))], False, None

    def _ended(self, state: Mapping[str, Any], value: float) -> Scored:
        parts = {name: float(state[name]) for name in ("steps", "fewest", "illegal")}
        return Scored(value=value, parts={**parts, "collected": 1 - len(state["now"][2]) / state["parcels"]})


def _told(state: Mapping[str, Any]) -> str:
    you, partner, left = state["now"]
    return f"You: {you}. Partner: {partner}. Parcels: {' '.join(map(str, left))}."


def corridor(
    *, slack: float = 2.0, partner: Partner = "", told: bool = True, check: bool = True, instructions: str = ""
) -> Corridor:
    """At most `slack` times the fewest steps; the rest is in the head of this file."""
    if slack < 1:
        raise ValueError(f"corridor: slack is {slack}: the fewest steps must be allowed, so at least 1")
    if partner not in ("", *SAID):
        raise ValueError(f"corridor: partner is {partner!r}: name one of {', '.join(SAID)}, or leave the problem's")
    return Corridor(slack, partner, told, check, instructions)
