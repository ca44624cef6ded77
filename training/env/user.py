"""A simulated user: a program with an unstated need and a mood that every turn changes. Problems of the family
hidden_needs.

RLVER, Wang et al. 2025, "RLVER: Reinforcement Learning with Verifiable Emotion Rewards for Empathetic Agents" (arXiv
2507.03112); there the
user is a language model with a persona, here its rules are these. The mood e is in [0, 100] and starts at `mood`:

    <ask/>                      the user shows another of its signs (the first is shown at once): + 5, once there is
                                none left - 5
    <acknowledge>need</...>     the first time that it is the user's own: + 15; again: nothing; another's: - 10
    <advise>need</...>          its own, after it was acknowledged: + 20, and the user is content; before: - 10
                                (premature); another's: - 10
    <praise/>                   + 2, from the fourth on - 2

Gains are multiplied by `ease` (a user who is hard to please: 0.5). The episode ends at `floor`, at `ceiling`, with the
right advice, or after `turns`; its score is e / 100. With `think`, a reply that does not begin with <think>...</think>
makes it 0. The same turns always give the same score. Parts: `mood`, `understood`, `praised`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from training.env import system

TOOLS = "ask, acknowledge, advise, praise"
BUDGETS = ("turns", "floor", "ceiling")
ENDS = "the right advice; a mood at the floor or the ceiling; `turns` turns; a turn that is none of them"
GIVES = ("mood", "understood", "praised", "format", "turn_reward")
_TEXT = re.compile(r"(?=.*?((?:\w+: [\w ]+; )+\w+: [\w ]+))(?=.*?\bis (\w+) and (\w+)\b).*", re.DOTALL)
_TURN = re.compile(r"<(ask|praise)\s*/>|<(acknowledge|advise)>\s*(\w+)\s*</\2>")
_THINK = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


@dataclass(frozen=True)
class User:
    turns: int
    mood: float
    floor: float
    ceiling: float
    ease: float
    think: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match = _TEXT.fullmatch(problem.question)
        if match is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'user', but its question lists no needs and signs"
            )
        state = {
            "need": problem.answer,
            "signs": [match[3]],
            "mood": self.mood,
            "turns": 0,
            "calls": 0,
            "praised": 0,
            "understood": False,
        }
        shown = Message(role="user", content=f"Needs and their signs: {match[1]}. I am {match[2]}.")
        return state | {"format": 1.0}, [*system(self.instructions), *problem.prompt[:-1], shown]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        state["turns"] += 1
        if self.think and not _THINK.match(text):
            state["format"] = 0.0
        match = _TURN.search(_THINK.sub("", text, count=1) if self.think else text)
        if match is None:
            return [], True, self._score(state, malformed=1.0)
        state["calls"] += 1
        reply, moved, content = self._hear(state, match[1] or match[2], match[3] or "")
        before = state["mood"]
        state["mood"] = min(100.0, max(0.0, before + (moved * self.ease if moved > 0 else moved)))
        state["step_reward"] = (state["mood"] - before) / 100
        if content or not self.floor < state["mood"] < self.ceiling or state["turns"] >= self.turns:
            return [], True, self._score(state)
        return [Message(role="user", content=reply)], False, None

    def _hear(self, state: dict, act: str, word: str) -> tuple[str, float, bool]:
        """For one turn: (what the user says, the change of its mood, whether it is content)."""
        right = word == state["need"]
        if act == "ask":
            return (
                (f"I am {state['signs'].pop()}.", 5.0, False)
                if state["signs"]
                else ("I have said it all.", -5.0, False)
            )
        if act == "praise":
            state["praised"] += 1
            return ("Well.", 2.0 if state["praised"] <= 3 else -2.0, False)
        if act == "acknowledge":
            known, state["understood"] = state["understood"], state["understood"] or right
            return (
                ("Yes, that is it.", 0.0 if known else 15.0, False)
                if right
                else ("No, you do not see me.", -10.0, False)
            )
        if right and state["understood"]:
            return "Thank you.", 20.0, True
        return ("You do not know that yet." if right else "That is no help."), -10.0, False

    def _score(self, state: dict, **parts: float) -> Scored:
        known = {
            "mood": state["mood"],
            "understood": float(state["understood"]),
            "praised": float(state["praised"]),
            "format": state["format"],
        }
        return Scored(value=state["mood"] / 100 * state["format"] * (0.0 if parts else 1.0), parts={**known, **parts})


def user(
    *,
    turns: int = 8,
    mood: float = 50.0,
    floor: float = 10.0,
    ceiling: float = 100.0,
    ease: float = 1.0,
    think: bool = False,
    instructions: str = "",
) -> User:
    """A user whose mood is the reward. `ease` below 1: harder to please; `think`: replies must begin with a thought."""
    if not floor < mood < ceiling:
        raise ValueError(f"user: the mood {mood} must lie between the floor {floor} and the ceiling {ceiling}")
    return User(turns, mood, floor, ceiling, ease, think, instructions)
