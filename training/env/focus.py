"""Point, then answer: a picture is shown at low resolution, the model names a region, and sees that region as it is.

"High-Resolution Visual Reasoning via Multi-Turn Grounding-Based Reinforcement Learning", 2025 (MGPO; its code is
EvolvingLMMs-Lab/MGPO): a template of two turns, since models do not ground by themselves; the first asks for coordinates
alone, the environment crops the ORIGINAL picture there, the second asks the question again. Only the last answer is
rewarded; no region is labelled.

The region is one of `grid` x `grid`, <box>column row</box> from the top left, and the low view has the region's size:
each of its pixels is the mean of grid x grid pixels. `crop` replaces what turn 2 shows, as a control: "random" a region
that is drawn from the problem's id, "low" the low view again. Parts: `hit` (the region named holds what is asked
about), `pointed` (turn 1 has the form). A first turn without a region ends the episode with 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from synth.types import Message, Problem, Score, Scored, seed_for
from training.env import system
from training.env.look import Look, asked, pictures

TOOLS = "draw"
BUDGETS = ()
ENDS = "the second turn"
GIVES = ("answered", "think", "hit", "pointed")
Crop = Literal["named", "random", "low"]
_BOX = re.compile(r"<box>\s*(\d+)[ ,]+(\d+)\s*</box>")
_THING = re.compile(r"(\w+) (\w+) \d+ at (\d+) (\d+)")
CELL = 8  # pixels of a cell of a scene


@dataclass(frozen=True)
class Focus(Look):
    grid: int = 4
    crop: Crop = "named"

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        whole = pictures(problem, tools, self.shown)[0]
        if whole.shape[0] % self.grid or whole.shape[1] % self.grid:
            raise ValueError(
                f"problem {problem.id} shows a picture of {whole.shape[0]} x {whole.shape[1]} pixels, which focus cannot "
                f"part into {self.grid} x {self.grid} regions: set `grid` to a number that divides both"
            )
        opened = asked(problem, [lower(whole, self.grid)])
        return {"problem": problem, "whole": whole, "region": None}, [
            *system(self.instructions),
            *problem.prompt[:-1],
            Message(role="user", content=f"{opened.content} First, in which region?", media=opened.media),
        ]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        problem, whole = state["problem"], state["whole"]
        if state["region"] is None:
            named = _BOX.search(text)
            x, y = (int(named[1]), int(named[2])) if named else (self.grid, self.grid)
            if max(x, y) >= self.grid:
                return [], True, Scored(value=0.0, parts=dict.fromkeys(GIVES, 0.0) | {"parsed": 0.0})
            state["region"] = (x, y)
            if self.crop == "random":
                x, y = np.random.default_rng(seed_for("focus", problem.id)).integers(0, self.grid, 2).tolist()
            view = lower(whole, self.grid) if self.crop == "low" else region(whole, self.grid, x, y)
            return [asked(problem, [view])], False, None
        reply, over, score = super().step(state, text)
        if isinstance(score, Scored):
            hit = float(state["region"] in holds(problem, whole.shape[0] // self.grid))
            score = Scored(value=score.value, parts={**score.parts, "hit": hit, "pointed": 1.0})
        return reply, over, score


def lower(whole: np.ndarray, grid: int) -> np.ndarray:
    """The picture [H, W, 3] at a `grid`-th of its resolution, uint8: means of squares."""
    h, w, _ = whole.shape
    return whole.reshape(h // grid, grid, w // grid, grid, 3).mean(axis=(1, 3)).round().astype(np.uint8)


def region(whole: np.ndarray, grid: int, x: int, y: int) -> np.ndarray:
    """The region in column x and row y, as it is."""
    h, w = whole.shape[0] // grid, whole.shape[1] // grid
    return whole[h * y : h * (y + 1), w * x : w * (x + 1)]


def holds(problem: Problem, side: int) -> set[tuple[int, int]]:
    """The regions of `side` pixels that hold a thing which the question names by its colour or shape."""
    shown, _, question = problem.question.rpartition("\n")
    words = set(re.findall(r"\w+", question))
    things = [m for m in _THING.findall(shown) if m[0] in words or m[1] in words]
    return {(CELL * int(x) // side, CELL * int(y) // side) for _, _, x, y in things}


def focus(*, grid: int = 4, crop: Crop = "named", instructions: str = "") -> Focus:
    """grid: regions of a row and of a column. crop: what turn 2 shows: the region named, a random one, or the low view.
    instructions: a system message (empty: none)."""
    if grid < 2 or crop not in get_args(Crop):
        raise ValueError(f"focus: grid is {grid} and crop {crop!r}: 2 or more regions a row, and named, random or low")
    return Focus(0.0, instructions, "picture", grid, crop)
