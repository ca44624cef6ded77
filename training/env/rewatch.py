"""A question about a clip, answered after statements of what was seen in which frame: which way and which first, of the family
clip_questions.

"ReWatch-R1: Boosting Complex Video Reasoning in Large Vision-Language Models through Agentic Data Synthesis" 2025 (arXiv
2509.23652), read from the abstract: what supports a statement, and that a rule judges whether statements suffice, is our
reading.

The clip is shown as in the environment `look`. The turn may hold `<observation>frame 3: red square at 1 2</observation>`, any
number of them, before its answer. Parts besides those of `look`:

    observed    statements, `most` at most
    supported   the share of them that the clip shows, 0 where there are none
    unsupported the share that it does not show, 0 where there are none
    sufficient  1 if the right answer follows from the statements alone
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import get_args

from synth.types import Message, Score, Scored
from synth.verify import verify
from synth.verify._clip import derived, supported
from training.env.look import Look, Shown

TOOLS = "draw"
BUDGETS = ("most",)
ENDS = "the first turn"
GIVES = ("answered", "think", "observed", "supported", "unsupported", "sufficient")
_SEEN = re.compile(r"<observation>([^<]{1,80})</observation>")


@dataclass(frozen=True)
class Rewatch(Look):
    most: int = 8

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        told, over, score = super().step(state, text)
        if not isinstance(score, Scored):
            return told, over, score
        problem = state["problem"]
        observations = _SEEN.findall(text)[: self.most]
        true = [supported(problem.question, s) for s in observations]
        follows = derived(problem.question.rpartition("\n")[2], observations)
        right = verify(problem, follows) if follows else None
        share = sum(true) / max(len(observations), 1)
        parts = {
            "observed": float(len(observations)),
            "supported": share,
            "unsupported": 1 - share if observations else 0.0,
            "sufficient": float(isinstance(right, Scored) and right.value >= 1),
        }
        return told, over, replace(score, parts={**score.parts, **parts})


def rewatch(*, most: int = 8, shown: Shown = "picture", format_reward: float = 0.0, instructions: str = "") -> Rewatch:
    """most: statements that are read. shown: picture, noise, white or shuffled. format_reward: value of a wrong answer in the
    right format. instructions: a system message (empty: none)."""
    if shown not in get_args(Shown) or most < 1:
        raise ValueError(
            f"rewatch: shown is {shown!r} and most {most}: name picture, noise, white or shuffled, and 1 or more"
        )
    return Rewatch(format_reward, instructions, shown, most)
