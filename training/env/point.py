"""A target on a screen is searched for with a cursor, which every message shows where it is now: requests "Point at the
..." of the family screen_tasks.

Zhao et al. 2025, "Learning GUI Grounding with Spatial Reasoning from Visual Feedback" (GUI-Cursor, arXiv 2509.21552), read
from the abstract: what is counted is our reading.

A turn is `<move>right 2 down 1</move>`, in cells and at most one of each axis, or `<stop/>`. After a move the screen is shown
again with the cursor redrawn. `<stop/>`, the `most`-th move, or a turn that is neither ends the episode; its score is 1 if
the cursor is then within the target's box. Parts, for a reward of the whole path:

    hit          as the score
    near         1 - d / d_max of the end to the centre of the target in pixels, 0 where it is hit
    false_stop   1 if it stopped outside
    away         moves after which the target was further
    repeated     moves to where the cursor had been before
    moves, distance   moves, and cells to the target at first

`cursor: false` does not draw it, as a control: what is reached then is not reached by looking where it is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import boxes
from synth.verify.clicks import Screen, read
from training.env import system
from training.env.look import asked, pictures
from synth.pictures import HELD

TOOLS = "draw"
BUDGETS = ("most",)
ENDS = "`<stop/>`; after `most` moves; a turn that is neither"
GIVES = ("hit", "near", "false_stop", "away", "repeated", "moves", "distance", "malformed")
WAYS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
_MOVE = re.compile(r"<move>(?:(left|right) ([1-9]))? ?(?:(up|down) ([1-9]))?</move>|<stop/>")


@dataclass(frozen=True)
class Point:
    most: int
    cursor: bool
    instructions: str
    draws = True  # the player is given the tool `draw`

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        screen = read(problem.question.partition("\n")[0])
        target = boxes.read(problem.answer)
        if screen.cursor is None or target is None:
            raise ValueError(
                f"problem {problem.id} has no cursor or no box to point at: screen_tasks with asks ['point'] makes such problems"
            )
        state = {"problem": problem, "tools": tools, "screen": screen, "box": target[0], "been": [screen.cursor]}
        state["counts"] = {"away": 0.0, "repeated": 0.0, "moves": 0.0}
        state["first"] = self._cells(state)
        opened = asked(problem, self._shown(state))
        return state, [*system(self.instructions), *problem.prompt[:-1], opened]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match = _MOVE.search(text)
        if match is None:
            return [], True, self._scored(state, malformed=True)
        if match[0] == "<stop/>":
            return [], True, self._scored(state, stopped=True)
        screen, counts = state["screen"], state["counts"]
        before = self._far(state)
        at = list(screen.cursor)
        for way, cells in ((match[1], match[2]), (match[3], match[4])):
            if way:
                at = [min(max(a + d * int(cells), 0), screen.cells - 1) for a, d in zip(at, WAYS[way], strict=True)]
        state["screen"] = replace(screen, cursor=(at[0], at[1]))
        counts["moves"] += 1
        counts["away"] += self._far(state) > before
        counts["repeated"] += (at[0], at[1]) in state["been"]
        state["been"].append((at[0], at[1]))
        if counts["moves"] >= self.most:
            return [], True, self._scored(state)
        (shown,) = self._shown(state)
        return [Message(role="tool", content="<image>", media=(HELD.add(shown),))], False, None

    def _shown(self, state: dict) -> list[Any]:
        screen: Screen = state["screen"] if self.cursor else replace(state["screen"], cursor=None)
        problem: Problem = state["problem"]
        told = f"{screen.text}\n{problem.question.rpartition(chr(10))[2]}"
        return pictures(replace(problem, prompt=(Message(role="user", content=told),)), state["tools"], "picture")

    @staticmethod
    def _centres(state: dict) -> tuple[float, float, float, float]:
        (left, top, right, bottom), screen = state["box"], state["screen"]
        cell = screen.side // screen.cells
        x, y = (cell * v + cell / 2 for v in screen.cursor)
        return x, y, (left + right) / 2, (top + bottom) / 2

    def _far(self, state: dict) -> float:
        x, y, tx, ty = self._centres(state)
        return math.hypot(x - tx, y - ty)

    def _cells(self, state: dict) -> float:
        x, y, tx, ty = self._centres(state)
        return (abs(x - tx) + abs(y - ty)) / (state["screen"].side / state["screen"].cells)

    def _scored(self, state: dict, *, stopped: bool = False, malformed: bool = False) -> Score:
        x, y, _, _ = self._centres(state)
        left, top, right, bottom = state["box"]
        hit = not malformed and left <= x < right and top <= y < bottom
        near = 1 - self._far(state) / math.hypot(state["screen"].side, state["screen"].side)
        parts = {
            **state["counts"],
            "parsed": float(not malformed),
            "malformed": float(malformed),
            "hit": float(hit),
            "near": 0.0 if hit else near,
            "false_stop": float(stopped and not hit),
            "distance": state["first"],
        }
        return Scored(value=float(hit), parts=parts)


def point(*, most: int = 4, cursor: bool = True, instructions: str = "") -> Point:
    """most: moves. cursor: whether it is drawn. instructions: a system message (empty: none)."""
    if most < 1:
        raise ValueError(f"point: most is {most}: allow at least one move")
    return Point(most, cursor, instructions)
