"""An assistant at home speaks or stays silent, and the person rates it. Problems of the family home_moments.

ProPerSim and ProPerAssistant (2025, "ProPerSim: Developing Proactive and Personalized AI Assistants through User-Assistant Simulation",
arXiv 2509.21730; read from the abstract, so ratings, moments and memory are our reading). An episode is one step of a day: the assistant sees the
time, what the person does and how long ago it last spoke, and the `top_k` earlier suggestions that are most like this moment
with their ratings: first those made during the same event, then those nearest in hours, the later ones first. What the person likes and
when they want quiet is not told. A turn is <say>kind</say> or <silent/>; then the person rates content, timing and frequency from 1 to 5, and the
score is (rating - 1) / 4. `rate` "content" rates what was said alone, whenever it was (silence as 1), for comparison. A turn that is
neither has score 0; with `held` there is none, for a turn is held to what may be said at that moment, so that candidates that are drawn for
it choose among the same actions. Parts: `rating`, `content`, `timing`, `frequency`, `spoke`, `interrupted` (spoke where quiet was wanted), each as it truly is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from synth.verify._home import SILENCE, Moment, rating, read, wants_quiet
from training.env import system

TOOLS = "say, silent"
BUDGETS = ("top_k",)
ENDS = "the first turn"
GIVES = ("rating", "content", "timing", "frequency", "spoke", "interrupted")
_SAY = re.compile(r"<say>\s*(\w+)\s*</say>|<silent\s*/>")


@dataclass(frozen=True)
class Home:
    top_k: int
    rate: Literal["all", "content"]
    held: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        m = read(problem.question)
        if m is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'home', but its question tells no moment at home: those of the family home_moments do"
            )
        kept = "; ".join(f"at {h}, {e}, {k}: {r}" for h, e, k, r in retrieved(m, self.top_k)) or "nothing"
        prompt = (
            f"{m.name} is at home. It is {m.hour}, {m.name} is {m.event}, and you last spoke {m.since} steps ago. You may suggest "
            f"{', '.join(m.likes)} or stay silent. You remember: {kept}."
        )
        choices = {"choices": ("<silent/>", *(f"<say>{kind}</say>" for kind in m.likes))} if self.held else {}
        return {"moment": m, "calls": 0, **choices}, [
            *system(self.instructions),
            *problem.prompt[:-1],
            Message(role="user", content=prompt),
        ]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        match, m = _SAY.search(text), state["moment"]
        if match is None:
            return [], True, Scored(value=0.0, parts=dict.fromkeys(GIVES, 0.0) | {"malformed": 1.0})
        action = match[1] or SILENCE
        known, spoke = rating(m, action), action != SILENCE
        value = known["content" if self.rate == "content" else "rating"]
        parts = {**known, "spoke": float(spoke), "interrupted": float(spoke and wants_quiet(m)), "malformed": 0.0}
        return [], True, Scored(value=(value - 1) / 4, parts=parts)


def retrieved(m: Moment, top_k: int) -> list[tuple[int, str, str, int]]:
    """The earlier suggestions most like this moment."""
    apart = lambda hour: min((hour - m.hour) % 24, (m.hour - hour) % 24)
    order = sorted(range(len(m.log)), key=lambda i: (m.log[i][1] != m.event, apart(m.log[i][0]), -i))
    return [m.log[i] for i in order[:top_k]]


def home(
    *, top_k: int = 5, rate: Literal["all", "content"] = "all", held: bool = False, instructions: str = ""
) -> Home:
    """`top_k` memories are shown; held: a turn is one of the actions that there are at the moment; the rest is in the head of this file."""
    if top_k < 0:
        raise ValueError(f"home: top_k is {top_k}: show 0 or more memories")
    if rate not in ("all", "content"):
        raise ValueError(f"home: rate is {rate!r}: name all or content")
    return Home(top_k, rate, held, instructions)
