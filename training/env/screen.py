"""A request about a screen, fulfilled action by action; every message shows the screen as it is now. Requests "Press the ...,
then write ..." of the family screen_tasks.

Chen et al. 2025, "GUI-Shepherd: Reliable Process Reward and Verification for Long-Sequence GUI Tasks" (arXiv 2509.23738)
and "UI-S1" (arXiv 2509.11543) have episodes of this kind on real screens.

A turn is `<act>click 1 2</act>` or `<act>type b</act>`. The episode ends when the request is fulfilled (score 1), when it no
longer can be (a wrong button pressed, a wrong letter written), at the `most`-th action, or at a turn without an action that the
screen has; the score is then 0. Parts:

    done          as the score
    steps_right   share of the actions after which less is left to do (`left`)
    actions       how many there were
    lost          1 if the request can no longer be fulfilled
    malformed     1 if it ended at a turn without an action

`told` pays each action at once, `right` for one after which less is left and `wrong` for another: a program that knows, in the
place of a process reward model. `shown: white` shows blank screens, as a control. `drawn: browser` shows each screen as an HTML page
that Chromium has drawn (synth/scenes/pages.py), whose transitions are the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from synth.types import Message, Problem, Score, Scored
from synth.verify.clicks import after, left, played, read
from training.env import system
from training.env.look import asked, pictures
from training.env.page import paged
from synth.pictures import HELD

TOOLS = "draw"
BUDGETS = ("most",)
ENDS = "the request is fulfilled, or lost; after `most` actions; a turn without an action"
GIVES = ("done", "steps_right", "actions", "lost", "malformed")
Blank = Literal["picture", "white"]
Drawn = Literal["numpy", "browser"]
ACT = re.compile(r"<act>([^<]{1,20})</act>")


@dataclass(frozen=True)
class ActOnScreen:
    most: int
    told: bool
    shown: Blank
    drawn: Drawn
    instructions: str
    draws = True  # the player is given the tool `draw`

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        screen = read(problem.question.partition("\n")[0])
        try:
            wanted = played(problem.question, problem.answer)
        except ValueError:
            raise ValueError(
                f"problem {problem.id} has no actions for an answer: screen_tasks with asks ['steps'] makes such problems"
            ) from None
        state = {"problem": problem, "tools": tools, "screen": screen, "wanted": wanted, "right": []}
        return state, [*system(self.instructions), *problem.prompt[:-1], asked(problem, self._shown(state))]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match = ACT.search(text)
        try:
            now = after(state["screen"], match[1]) if match else None
        except ValueError:
            now = None
        if now is None:
            return [], True, self._scored(state, malformed=True)
        before, rest = left(state["screen"], state["wanted"]), left(now, state["wanted"])
        better = rest is not None and before is not None and rest < before
        state["screen"] = now
        state["right"].append(float(better))
        if self.told:
            state["step_reward"] = 0.5 if better else -0.5
        if rest is None or rest == 0 or len(state["right"]) >= self.most:
            return [], True, self._scored(state, rest=rest)
        (shown,) = self._shown(state)
        return [Message(role="tool", content="<image>", media=(HELD.add(shown),))], False, None

    def _shown(self, state: dict) -> list[np.ndarray]:
        problem: Problem = state["problem"]
        tools = paged(state["tools"]) if self.drawn == "browser" else state["tools"]
        told = f"{state['screen'].text}\n{problem.question.rpartition(chr(10))[2]}"
        return pictures(replace(problem, prompt=(Message(role="user", content=told),)), tools, self.shown)

    @staticmethod
    def _scored(state: dict, *, rest: int | None = -1, malformed: bool = False) -> Score:
        right = state["right"]
        parts = {
            "parsed": float(not malformed),
            "done": float(rest == 0),
            "steps_right": sum(right) / len(right) if right else 0.0,
            "actions": float(len(right)),
            "lost": float(rest is None),
            "malformed": float(malformed),
        }
        return Scored(value=float(rest == 0), parts=parts)


def screen(
    *, most: int = 8, told: bool = False, shown: Blank = "picture", drawn: Drawn = "numpy", instructions: str = ""
) -> ActOnScreen:
    """most: actions. told: whether each action is paid at once, +1/2 or -1/2. shown: picture, or white. drawn: by whom, numpy (8 x 8
    pixels a widget of our own) or a browser (an HTML page). instructions: a system message (empty: none)."""
    if most < 1 or shown not in get_args(Blank):
        raise ValueError(f"screen: most is {most} and shown {shown!r}: at least one action, and picture or white")
    if drawn not in get_args(Drawn):
        raise ValueError(f"screen: drawn is {drawn!r}: name numpy or browser")
    return ActOnScreen(most, told, shown, drawn, instructions)
