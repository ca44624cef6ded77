"""One question about a screen and one answer, as `look`; the screen is an HTML page that a browser has drawn (synth/scenes/pages.py).

The tool `page` draws it from the problem: the problems of the family screen_tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from synth.types import Message, Problem
from training.env.look import Look, Shown

TOOLS = "draw"
BUDGETS = ()
ENDS = "the first turn"
GIVES = ("answered", "think")


def paged(tools: Mapping[str, Any]) -> dict[str, Any]:
    """The tools of a player, drawing pages in place of pictures of our own. Raises LookupError without the tool `page`."""
    if "page" not in tools:
        raise LookupError(
            "a screen is to be drawn by a browser, and this player has no tool `page`: give it tasks.models.drawn_pages.draw"
        )
    return {**tools, "draw": tools["page"]}


@dataclass(frozen=True)
class Page(Look):
    drawn = "browser"  # the player is given the tool `page`

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return super().start(problem, paged(tools))


def page(*, shown: Shown = "picture", format_reward: float = 0.0, instructions: str = "") -> Page:
    """shown: picture, noise, white or shuffled. format_reward: value of a wrong answer in the right format. instructions: a
    system message (empty: none)."""
    if shown not in get_args(Shown):
        raise ValueError(f"page: shown is {shown!r}: name picture, noise, white or shuffled")
    return Page(format_reward, instructions, shown)
