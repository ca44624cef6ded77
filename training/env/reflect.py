"""Answer, reflect, answer again, in one turn: a question about a picture with a second thought.

Wan et al. 2025, "SRPO: Enhancing Multimodal LLM Reasoning via Reflection-Aware Reinforcement Learning": a first
solution, <reflection>...</reflection>, a revised solution.

    <answer>3</answer><reflection>wrong, look again</reflection><answer>2</answer>

The value is that of the last answer. Parts: `first` and `second` (the values of the two answers; without a reflection
both are the only answer's), `reflected` (one reflection with words in it, between two answers), `corrected` and `spoilt`
(wrong before and right after it, and the reverse), `reflection_words` (how long it is, in words).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import get_args

from synth.types import Message, Score, Scored
from synth.verify import verify
from training.env.look import Look, Shown

TOOLS = "draw"
BUDGETS = ()
ENDS = "the first turn"
GIVES = ("answered", "think", "first", "second", "reflected", "corrected", "spoilt", "reflection_words")
TURN = re.compile(r"[^<]*<answer>([^<]*)</answer>[^<]*<reflection>([^<]*)</reflection>[^<]*<answer>([^<]*)</answer>\s*")


@dataclass(frozen=True)
class Reflect(Look):
    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        reply, over, score = super().step(state, text)
        if not isinstance(score, Scored):
            return reply, over, score
        first, words = score.value, 0
        if match := TURN.fullmatch(text):
            words = len(match[2].split())
            before = verify(state["problem"], match[1].strip())
            first = before.value if isinstance(before, Scored) else 0.0
        parts = {
            "first": first,
            "second": score.value,
            "reflected": float(words > 0),
            "corrected": float(words > 0 and first < 1.0 <= score.value),
            "spoilt": float(words > 0 and score.value < 1.0 <= first),
            "reflection_words": float(words),
        }
        return reply, over, Scored(value=score.value, parts={**score.parts, **parts})


def reflect(*, shown: Shown = "picture", instructions: str = "") -> Reflect:
    """shown: picture, noise or white, as `look`. instructions: a system message (empty: none)."""
    if shown not in get_args(Shown):
        raise ValueError(f"reflect: shown is {shown!r}: name picture, noise or white")
    return Reflect(0.0, instructions, shown)
