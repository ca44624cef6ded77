"""A grid walked turn by turn, with a tool that moves and says what is around: problems of the families grid_navigation
and key_and_door with env "walk". A door opens for a walker who has stood on the key.

A turn is `<move>UURD</move>`: the moves are made until one is blocked, and a tool message says where the walker stands,
which ways are open, and what blocked it. Reaching the goal ends the episode with score 1; more than `slack` times the
shortest number of moves, or a turn that is no move, ends it with 0. With `hidden` the map is removed from the question,
and the model has to explore.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify.moves import STEPS, free, letters
from training.env import system

TOOLS = "move"
BUDGETS = ("slack",)
ENDS = "the goal; more than `slack` times the fewest moves; a turn without moves"
GIVES = ("moves", "shortest", "late", "malformed")
_MOVE = re.compile(r"<move>(.*?)</move>", re.DOTALL)
_MAP = re.compile(r"[.#SGKD/]{3,}")


@dataclass(frozen=True)
class Walk:
    slack: float
    hidden: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        rows = [str(row) for row in problem.args["rows"]]
        place = next((r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == "S")
        state = {
            "rows": rows,
            "place": place,
            "key": False,
            "moves": 0,
            "calls": 0,
            "shortest": int(problem.args["limit"]),
        }
        prompt = list(problem.prompt)
        if self.hidden:
            told = _MAP.sub(f"a grid of {len(rows)} by {len(rows[0])}, not shown. {_around(state)}", prompt[-1].content)
            prompt[-1] = Message(role=prompt[-1].role, content=told)
        return state, [*system(self.instructions), *prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match = _MOVE.search(text)
        wanted = letters(match.group(1).strip()) if match else None
        parts = {"moves": float(state["moves"]), "shortest": float(state["shortest"])}
        if wanted is None:
            return [], True, Scored(value=0.0, parts={**parts, "parsed": 0.0, "malformed": 1.0})
        state["calls"] += 1
        blocked = ""
        for letter in wanted:
            r, c = state["place"][0] + STEPS[letter][0], state["place"][1] + STEPS[letter][1]
            state["moves"] += 1
            if not free(state["rows"], r, c, state["key"]):
                blocked = f"{letter} is blocked. "
                break
            state["place"], state["key"] = (r, c), state["key"] or state["rows"][r][c] == "K"
            if state["rows"][r][c] == "G":
                break
        r, c = state["place"]
        parts["moves"] = float(state["moves"])
        if state["moves"] > self.slack * state["shortest"]:
            return [], True, Scored(value=0.0, parts={**parts, "parsed": 1.0, "late": 1.0})
        if state["rows"][r][c] == "G":
            return [], True, Scored(value=1.0, parts={**parts, "parsed": 1.0})
        return [Message(role="tool", content=blocked + _around(state))], False, None


def _around(state: Mapping[str, Any]) -> str:
    """Where the walker stands, the ways that are open, the doors that are not, and whether the key is there."""
    (r, c), rows = state["place"], state["rows"]
    ways = {letter: (r + dr, c + dc) for letter, (dr, dc) in STEPS.items()}
    open_ways = [letter for letter, place in ways.items() if free(rows, *place, state["key"])]
    doors = [letter for letter, place in ways.items() if free(rows, *place, True) and letter not in open_ways]
    text = f"At row {r + 1} column {c + 1}, open: {' '.join(open_ways) or 'nothing'}"
    return (
        text + (f", a closed door: {' '.join(doors)}" if doors else "") + (", you have the key" if state["key"] else "")
    )


def walk(*, slack: float = 2.0, hidden: bool = False, instructions: str = "") -> Walk:
    """Grid navigation with a tool that moves. At most `slack` times the shortest number of moves; `hidden` keeps the
    map from the model."""
    return Walk(slack, hidden, instructions)
