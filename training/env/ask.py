"""Twenty questions: ask about a hidden thing, then say which it is. Problems of the family twenty_questions with env
"ask".

After Ask-to-Act (Ramrakhya et al. 2025, "Grounding Multimodal LLMs to Embodied Agents that Ask for Help with
Reinforcement Learning", arXiv 2504.00907). The prompt shows the things and their properties; of the answers that the
family prints it shows only the first `reveal`. A turn is `<ask>property</ask>`, answered by yes or no, or
`<answer>name</answer>`, which ends the episode. The score is a sum:

    success * right + useful * (questions that left fewer candidates) + useless * (the others, and those beyond
    `budget`) + step * turns

With the defaults it is 1 for the right name and 0 else. A question beyond `most`, or a turn that is neither question
nor answer, ends the episode.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, verify
from training.env import system

TOOLS = "ask"
BUDGETS = ("most", "budget")
ENDS = "a name said; a question beyond `most`; a turn that is neither"
GIVES = ("answered", "right", "calls", "left", "turn_reward")
_TEXT = re.compile(  # the things and the answers in any wording
    r"(?=.*?\b((?:\w+: [\w ]+; )+\w+: [\w ]+))(?=.*?(Is it \w+\? (?:yes|no)(?: Is it \w+\? (?:yes|no))*)).*", re.DOTALL
)
_THING = re.compile(r"(\w+): ([\w ]+)")
_HINT = re.compile(r"Is it (\w+)\? (yes|no)")
_ASK = re.compile(r"<ask>\s*(\w+)\s*</ask>")


@dataclass(frozen=True)
class Ask:
    success: float
    useful: float
    useless: float
    step_penalty: float
    budget: int
    most: int
    reveal: int
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        match = _TEXT.fullmatch(problem.question)
        if match is None:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'ask', but its question lists no things to ask about"
            )
        things = {name: frozenset(words.split()) for name, words in _THING.findall(match.group(1))}
        shown = _HINT.findall(match.group(2))[: self.reveal]
        left = [t for t, words in things.items() if all((w in words) == (a == "yes") for w, a in shown)]
        hints = "".join(f" Is it {w}? {a}." for w, a in shown)
        prompt = Message(role="user", content=f"{match.group(1)}.{hints} Ask, then say which one it is.")
        state = {"problem": problem, "things": things, "left": left, "asked": [], "sum": 0.0, "calls": 0}
        return state, [*system(self.instructions), *problem.prompt[:-1], prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer, question = extract_answer(text), _ASK.search(text)
        state["sum"] += self.step_penalty
        if answer is not None:
            verdict = verify(state["problem"], answer)
            if not isinstance(verdict, Scored):
                return [], True, verdict
            state["step_reward"] = self.success * verdict.value + self.step_penalty
            return (
                [],
                True,
                self._ended(state, self.success * verdict.value, answered=1.0, right=verdict.value, **verdict.parts),
            )
        if question is None or state["calls"] >= self.most:
            return [], True, self._ended(state, 0.0, answered=0.0, malformed=float(question is None))
        word = question.group(1)
        has = word in state["things"][state["problem"].answer]
        left = [t for t in state["left"] if (word in state["things"][t]) == has]
        state["calls"] += 1
        helped = len(left) < len(state["left"]) and state["calls"] <= self.budget
        worth = self.useful if helped else self.useless
        state["sum"] += worth
        state["step_reward"] = worth + self.step_penalty
        state["left"] = left
        return [Message(role="tool", content="yes" if has else "no")], False, None

    def _ended(self, state: dict, more: float, **parts: float) -> Scored:
        known = {"calls": float(state["calls"]), "left": float(len(state["left"]))}
        return Scored(value=state["sum"] + more, parts={**parts, **known})


def ask(
    *,
    success: float = 1.0,
    useful: float = 0.0,
    useless: float = 0.0,
    step_penalty: float = 0.0,
    budget: int = 20,
    most: int = 20,
    reveal: int = 0,
    instructions: str = "",
) -> Ask:
    """Twenty questions. The docstring of this file gives the rewards. `most`: the most questions; only the first
    `budget` can be useful."""
    return Ask(success, useful, useless, step_penalty, budget, most, reveal, instructions)
