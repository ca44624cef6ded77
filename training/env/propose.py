"""The environment of a proposer: it is asked for a problem, and answers with a spec in `<answer>...</answer>`, which
ends the episode.

The value of a proposal is not known here: it is first certified and attempted (training/rl/proposer.py), and then its
score is replaced. Self-play of this kind: Wang et al. 2025, "Socratic-Zero" (arXiv 2509.24726); Yang et al. 2025,
"SPELL" (arXiv 2509.23863).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing
from training.env import system

TOOLS = ""
BUDGETS = ()
ENDS = "the first turn"
GIVES = ("answered",)


@dataclass(frozen=True)
class Propose:
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        return {}, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        if extract_answer(text) is None:
            return [], True, Scored(value=0.0, parts={**missing(text).parts, "answered": 0.0})
        return [], True, Scored(value=0.0, parts={"parsed": 1.0, "answered": 1.0})


def propose(*, instructions: str = "") -> Propose:
    """One turn, one spec. instructions: a system message (empty: none)."""
    return Propose(instructions)
