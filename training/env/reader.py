"""A text is read a few sentences at a time, with a memory that is overwritten and may be looked back into. Problems of the
family scattered_facts.

"Look Back to Reason Forward: Revisitable Memory for Long-Context LLM Agents", 2025 (ReMemR1, arXiv 2509.23040), read from its
abstract.

While there is text left a turn is `<memory>what to keep</memory>`, with `<recall>words</recall>` beside it where an earlier
memory is wanted. The model then sees the question, its memory (`notes` characters at most), the earlier memory that has most
of those words (the latest of equals; the one before the present included), and the next `chunk` sentences: nothing else is
left of what it read. After the last chunk it answers, which the problem's verifier scores. A turn without a memory, or at the
end without an answer, ends the episode with score 0.

    reward of the turn = share of the two facts that its memory states - that of the memory before

A memory states a fact if it names both of what the fact joins; so what is overwritten is charged, and the rewards of an
episode sum to what the last memory states, the part `evidence`. Other parts: `recalled` (turns that looked back), `answered`.
Each turn is a row of its own (`history`, training/env/__init__.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, missing, verify
from synth.verify._scattered import evidence, told
from training.env import system

TOOLS = ""
BUDGETS = ("notes",)
ENDS = "an answer after the last sentences; a turn without a memory before"
GIVES = ("evidence", "recalled", "answered", "turn_reward")
_MEMORY = re.compile(r"<memory>(.*?)</memory>", re.DOTALL)
_RECALL = re.compile(r"<recall>(.*?)</recall>", re.DOTALL)


@dataclass(frozen=True)
class Reader:
    chunk: int
    notes: int
    recall: bool
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        try:
            sentences, query = told(problem.question)
        except ValueError as e:
            raise ValueError(
                f"problem {problem.id} plays in the environment 'reader', but its question has no sentences of facts"
            ) from e
        parts = [sentences[i : i + self.chunk] for i in range(0, len(sentences), self.chunk)]
        state = {
            "problem": problem,
            "asked": query,
            "parts": parts,
            "read": 0,
            "memories": [""],
            "recalled": 0,
            "gold": evidence(problem.question),
        }
        return state, self._shown(state, "")

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        if state["read"] == len(state["parts"]):
            answer = extract_answer(text)
            return (
                [],
                True,
                self._scored(state, missing(text) if answer is None else verify(state["problem"], answer), answer),
            )
        kept = _MEMORY.search(text)
        if kept is None:
            return [], True, self._scored(state, Scored(value=0.0, parts={}), None)
        wanted, recalled = _RECALL.search(text), ""
        if wanted is not None and self.recall:
            words = set(re.findall(r"\w+", wanted[1]))
            recalled = max(reversed(state["memories"]), key=lambda m: len(words & set(re.findall(r"\w+", m))))
            state["recalled"] += 1
        before = self._stated(state)
        state["memories"].append(" ".join(kept[1].split())[: self.notes])
        state["step_reward"] = self._stated(state) - before
        state["read"] += 1
        state["history"] = self._shown(state, recalled)
        return state["history"][-1:], False, None

    def _shown(self, state: dict, recalled: str) -> list[Message]:
        at, parts, memory = state["read"], state["parts"], state["memories"][-1]
        lines = [state["asked"], f"Memory: {memory.rstrip('. ') or 'none'}."]
        if recalled:
            lines.append(f"Recalled: {recalled.rstrip('. ')}.")
        if at < len(parts):
            lines.append(f"Part {at + 1} of {len(parts)}: {' '.join(f'{s}.' for s in parts[at])}")
        else:
            lines.append("That was all: answer.")
        return [*system(self.instructions), Message(role="user", content=" ".join(lines))]

    def _stated(self, state: dict) -> float:
        words = set(re.findall(r"\w+", state["memories"][-1]))
        return sum(set(fact) <= words for fact in state["gold"]) / len(state["gold"])

    def _scored(self, state: dict, score: Score, answer: str | None) -> Score:
        if not isinstance(score, Scored):
            return score
        parts = {
            "evidence": self._stated(state),
            "recalled": float(state["recalled"]),
            "answered": float(answer is not None),
        }
        return Scored(value=score.value, parts={**score.parts, **parts})


def reader(*, chunk: int = 2, notes: int = 200, recall: bool = True, instructions: str = "") -> Reader:
    """`chunk`: sentences of a turn; `recall: false`: requests to look back are not met, as a control. Raises ValueError for a
    chunk without sentences."""
    if chunk < 1:
        raise ValueError(f"reader: chunk is {chunk}: it counts sentences, so name 1 or more")
    return Reader(chunk, notes, recall, instructions)
