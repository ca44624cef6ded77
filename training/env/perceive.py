"""Look first: a question about a picture, answered after a block that says what is seen.

"VTPerception-R1: Enhancing Multimodal Reasoning via Explicit Visual and Textual Perceptual Grounding", 2025 (arXiv
2509.24776), read from the abstract, so what counts as a fact and as consistent is our reading.

A turn is <perception>red square, blue ring; asked: red</perception> and <answer>...</answer>, with any working between.
The things that the problem describes are the key facts; the words of the question that name a colour or a shape are its
key conditions. Parts of the score, each from 0 to 1:

    visual      share of the things that the block names, less the share of its things that are not there
    textual     share of the key conditions that the block repeats
    consistent  the answer is what the block's own things give: to a count their number, else the block names what
                is asked about
    form        one block, before one answer

The value is the answer's. Without the form all parts are 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer
from training.env.look import Look, Shown

TOOLS = "draw"
BUDGETS = ()
ENDS = "the first turn"
GIVES = ("answered", "think", "visual", "textual", "consistent", "form", "invented")
TURN = re.compile(r"\s*<perception>([^<]*)</perception>.*<answer>[^<]*</answer>\s*", re.DOTALL)
_THING = re.compile(r"(\w+) (\w+) \d+ at \d+ \d+")
_PLAIN = set(
    "a and are asked box boxes colour column has hold holds how in is it larger left many of row shape shapes than the there where which".split()
)


@dataclass(frozen=True)
class Perceive(Look):
    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        reply, over, score = super().step(state, text)
        if isinstance(score, Scored):
            score = Scored(value=score.value, parts={**score.parts, **judged(state["problem"], text)})
        return reply, over, score


def judged(problem: Problem, text: str) -> dict[str, float]:
    """The parts of a turn."""
    match = TURN.fullmatch(text)
    if match is None or text.count("<answer>") != 1:
        return dict.fromkeys(("visual", "textual", "consistent", "form", "invented"), 0.0)
    shown, _, query = problem.question.rpartition("\n")
    told, _, repeated = match[1].partition("; asked:")
    named = [x.strip() for x in told.split(",") if x.strip()]
    there = {f"{a} {b}" for a, b in _THING.findall(shown)}
    invented = sum(x not in there for x in named) / len(named) if named else 0.0
    keys = {w for w in re.findall(r"\w+", query.lower()) if w not in _PLAIN}
    about = [x for x in set(named) if keys & set(x.split())]
    consistent = extract_answer(text) == str(len(about)) if query.startswith("How many") else bool(about)
    return {
        "visual": max(0.0, len(there & set(named)) / max(len(there), 1) - invented),
        "textual": len(keys & set(repeated.split())) / len(keys) if keys else 1.0,
        "consistent": float(consistent),
        "form": 1.0,
        "invented": invented,
    }


def perceive(*, shown: Shown = "picture", instructions: str = "") -> Perceive:
    """shown: picture, noise or white, as `look`. instructions: a system message (empty: none)."""
    if shown not in get_args(Shown):
        raise ValueError(f"perceive: shown is {shown!r}: name picture, noise or white")
    return Perceive(0.0, instructions, shown)


def block(problem: Problem, named: Sequence[str]) -> str:
    """The block that names these things and repeats the question's key conditions."""
    query = problem.question.rpartition("\n")[2].lower()
    keys = [w for w in dict.fromkeys(re.findall(r"\w+", query)) if w not in _PLAIN]
    return f"<perception>{', '.join(named)}; asked: {' '.join(keys)}</perception>"
