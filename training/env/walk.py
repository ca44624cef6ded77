"""A grid walked turn by turn, with a tool that moves and says what is around: problems of the family grid_navigation with env "walk".

A turn is `<move>UURD</move>`: the moves are made until one is blocked, and a tool message says where the walker stands, what is open, and
what blocked it. Reaching the goal ends the episode with score 1; more than `slack` times the shortest number of moves, or a turn that is
no move, ends it with 0. With `hidden` the map is taken out of the question, and what is not seen must be found out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify.moves import STEPS, letters
from training.env import system

TOOLS = "move"
BUDGETS = ("slack",)
ENDS = "the goal; more than `slack` times the fewest moves; a turn without moves"
_MOVE = re.compile(r"<move>(.*?)</move>", re.DOTALL)
_MAP = re.compile(r"[.#SG/]{3,}")


@dataclass(frozen=True)
class Walk:
    slack: float
    hidden: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        rows = [str(row) for row in problem.args["rows"]]
        place = next((r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x == "S")
        state = {"rows": rows, "place": place, "moves": 0, "calls": 0, "shortest": int(problem.args["limit"])}
        prompt = list(problem.prompt)
        if self.hidden:
            told = _MAP.sub(f"a grid of {len(rows)} by {len(rows[0])}, not shown. {_around(rows, place)}", prompt[-1].content)
            prompt[-1] = Message(role=prompt[-1].role, content=told)
        return state, [*system(self.instructions), *prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        found = _MOVE.search(text)
        wanted = letters(found.group(1).strip()) if found else None
        parts = {"moves": float(state["moves"]), "shortest": float(state["shortest"])}
        if wanted is None:
            return [], True, Scored(value=0.0, parts={**parts, "parsed": 0.0, "malformed": 1.0})
        state["calls"] += 1
        blocked = ""
        for letter in wanted:
            r, c = state["place"][0] + STEPS[letter][0], state["place"][1] + STEPS[letter][1]
            state["moves"] += 1
            if not _free(state["rows"], r, c):
                blocked = f"{letter} is blocked. "
                break
            state["place"] = r, c
            if state["rows"][r][c] == "G":
                break
        r, c = state["place"]
        parts["moves"] = float(state["moves"])
        if state["moves"] > self.slack * state["shortest"]:
            return [], True, Scored(value=0.0, parts={**parts, "parsed": 1.0, "late": 1.0})
        if state["rows"][r][c] == "G":
            return [], True, Scored(value=1.0, parts={**parts, "parsed": 1.0})
        return [Message(role="tool", content=blocked + _around(state["rows"], (r, c)))], False, None


def _free(rows: list[str], r: int, c: int) -> bool:
    return 0 <= r < len(rows) and 0 <= c < len(rows[r]) and rows[r][c] != "#"


def _around(rows: list[str], place: tuple[int, int]) -> str:
    ways = [letter for letter, (dr, dc) in STEPS.items() if _free(rows, place[0] + dr, place[1] + dc)]
    return f"At row {place[0] + 1} column {place[1] + 1}, open: {' '.join(ways) or 'nothing'}"


def walk(*, slack: float = 2.0, hidden: bool = False, instructions: str = "") -> Walk:
    """Grid navigation with a tool that moves. At most `slack` times the shortest number of moves; `hidden` keeps the map from the model."""
    return Walk(slack, hidden, instructions)
