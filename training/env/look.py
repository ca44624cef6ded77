"""One question about pictures, which are shown, and one answer: the problems of synth/scenes.

The question of such a problem describes its pictures and asks in its last line. The tool `draw` draws them from the
problem; the message has an `<image>` for each and the last line, so the description reaches no model. `shown` puts
something else of the same size in their place, as a control: noise (drawn from the problem's id), or plain white. What
can be answered then is not read from the picture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from synth.types import Message, Problem, seed_for
from training.env import system
from training.env.single import Single
from synth.pictures import HELD

TOOLS = "draw"
BUDGETS = ()
ENDS = "the first turn"
GIVES = ("answered", "think")
Shown = Literal["picture", "noise", "white", "shuffled"]


@dataclass(frozen=True)
class Look(Single):
    shown: Shown = "picture"
    draws = True  # the player is given the tool `draw`

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        opened = asked(problem, pictures(problem, tools, self.shown))
        return {"problem": problem}, [*system(self.instructions), *problem.prompt[:-1], opened]


def asked(problem: Problem, shown: list[np.ndarray]) -> Message:
    """What a problem asks, after these pictures, which are held from now on."""
    names = tuple(HELD.add(x) for x in shown)
    return Message(role="user", content="<image>" * len(names) + problem.question.rpartition("\n")[2], media=names)


def pictures(problem: Problem, tools: Mapping[str, Any], shown: Shown) -> list[np.ndarray]:
    """What is shown of a problem, pictures [H, W, 3] uint8. Raises LookupError without the tool `draw`, ValueError
    for a problem that describes no picture."""
    if "draw" not in tools:
        raise LookupError(
            f"problem {problem.id} shows pictures, and this player has no tool `draw`: give it synth.scenes.draw"
        )
    drawn = tools["draw"](problem)
    if shown == "white":
        return [np.full_like(x, 255) for x in drawn]
    if shown == "noise":
        rng = np.random.default_rng(seed_for("look", problem.id))
        return [rng.integers(0, 256, x.shape, dtype=np.uint8) for x in drawn]
    if shown == "shuffled":
        return [drawn[i] for i in np.random.default_rng(seed_for("look", problem.id)).permutation(len(drawn))]
    return drawn


def look(*, shown: Shown = "picture", format_reward: float = 0.0, instructions: str = "") -> Look:
    """shown: picture, noise, white or shuffled. format_reward: value of a wrong answer in the right format. instructions: a
    system message (empty: none)."""
    if shown not in get_args(Shown):
        raise ValueError(f"look: shown is {shown!r}: name picture, noise, white or shuffled")
    return Look(format_reward, instructions, shown)
