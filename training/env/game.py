"""Nim against an opponent who never errs. Problems of the family nim_heaps.

Bouton 1901, "Nim, a game with a complete mathematical theory". A turn is `2 from heap 3` in <move>; the opponent
replies with a move after which the exclusive or of the heaps is 0, or, if it is 0 already, takes one from the largest
heap. Who takes the last wins: the score is 1 or 0. In the problem's position the first player wins, by exactly one
move, so every mistake shows at the end. `mercy`: a weak opponent, who always takes one from the largest heap. A move
that the rules do not allow ends the game with 0 (`malformed`). Parts: `moves`, `won`, `kept` (the share of moves that
left the exclusive or at 0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import Any

from synth.types import Message, Problem, Score, Scored
from training.env import system

TOOLS = "move"
BUDGETS = ()
ENDS = "the last heap is taken; a move that the rules do not allow"
GIVES = ("won", "moves", "kept")
_TEXT = re.compile(r"\b[Hh]eaps of (\d+(?:, \d+)*)")  # in any wording of the family
_RULES = "Two take turns, any number from one heap, who takes the last wins. What is your move?"
_MOVE = re.compile(r"<move>\s*(\d{1,4}) from heap (\d{1,4})\s*</move>")


@dataclass(frozen=True)
class Game:
    mercy: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match = _TEXT.search(problem.question)
        if match is None:
            raise ValueError(f"problem {problem.id} plays in the environment 'game', but its question shows no heaps")
        heaps = [int(h) for h in match[1].split(", ")]
        prompt = f"Heaps of {match[1]}. {_RULES}"
        return {"heaps": heaps, "calls": 0, "kept": 0}, [
            *system(self.instructions),
            *problem.prompt[:-1],
            Message(role="user", content=prompt),
        ]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        heaps, match = state["heaps"], _MOVE.search(text)
        n, i = (int(match[1]), int(match[2]) - 1) if match else (0, -1)
        if not (0 <= i < len(heaps) and 1 <= n <= heaps[i]):
            return [], True, self._ended(state, 0.0, malformed=1.0)
        heaps[i] -= n
        state["calls"] += 1
        state["kept"] += reduce(xor, heaps) == 0
        if not any(heaps):
            return [], True, self._ended(state, 1.0)
        taken, j = self._reply(heaps)
        heaps[j] -= taken
        if not any(heaps):
            return [], True, self._ended(state, 0.0)
        return (
            [Message(role="user", content=f"I take {taken} from heap {j + 1}. Heaps of {', '.join(map(str, heaps))}.")],
            False,
            None,
        )

    def _reply(self, heaps: list[int]) -> tuple[int, int]:
        """(how many, from which heap)."""
        total = reduce(xor, heaps)
        moves = [(h - (h ^ total), i) for i, h in enumerate(heaps) if h ^ total < h]
        return moves[0] if moves and not self.mercy else (1, max(range(len(heaps)), key=lambda i: heaps[i]))

    def _ended(self, state: dict, won: float, **parts: float) -> Scored:
        n = state["calls"]
        return Scored(
            value=won, parts={"won": won, "moves": float(n), "kept": state["kept"] / max(n, 1), "parsed": 1.0, **parts}
        )


def game(*, mercy: bool = False, instructions: str = "") -> Game:
    """Nim to the end, against an exact opponent."""
    return Game(mercy, instructions)
