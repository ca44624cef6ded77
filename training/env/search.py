"""Multi-turn question answering with a search tool, in the text protocol of Search-R1 (Jin et al. 2025, arXiv
2503.09516).

A turn is `<search>query</search>` or `<answer>text</answer>`. A search is answered by a tool message with the passages
found; an answer ends the episode and is scored by the problem's verifier. Anything else ends it with score 0
(`malformed`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, verify
from training.env import system, thinks
from training.env._browse import Browse
from training.env._evidence import Evidence
from training.env._passages import Passages

TOOLS = ("search", "open", "find")
BUDGETS = ("max_calls", "max_context")
ENDS = "an answer; a call beyond the budget; a turn that is neither"
GIVES = {
    "think": "",
    "calls": "",
    "answered": "",
    "malformed": "",
    "context": "tools:open",
    "repeated": ("gain", "redundancy", "tools:open"),
    "evidence": ("gain", "redundancy"),
    "right": ("gain", "redundancy"),
    "right_evidence": ("gain", "redundancy"),
    "ndcg": "ask:rank",
    "recall": ("ask:rank", "ask:facts"),
    "rbo": "ask:rank",
    "score": "ask:rate",
    "relevant": "ask:rate",
    "precision": "ask:facts",
    "general": "ask:facts",
    "format": "ask:facts",
    "turn_reward": ("gain", "redundancy"),
}
_QUERY = re.compile(r"<search>(.*?)</search>", re.DOTALL)


@dataclass(frozen=True)
class Search:
    max_calls: int
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        if "search" not in tools:
            raise LookupError(
                f"problem {problem.id} plays in the environment 'search', but no tool 'search' was given to the player"
            )
        return {"problem": problem, "search": tools["search"], "calls": 0}, [
            *system(self.instructions),
            *problem.prompt,
        ]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        state["think"] = max(state.get("think", 0.0), thinks(text))
        parts = {"calls": float(state["calls"]), "answered": float(answer is not None), "think": state["think"]}
        if answer is not None:
            score = verify(state["problem"], answer)
            return (
                [],
                True,
                Scored(value=score.value, parts={**score.parts, **parts}) if isinstance(score, Scored) else score,
            )
        query = _QUERY.search(text)
        if query is None or state["calls"] >= self.max_calls:
            return [], True, Scored(value=0.0, parts={**parts, "malformed": float(query is None)})
        state["calls"] += 1
        return [Message(role="tool", content=state["search"](query.group(1)))], False, None


def search(
    *,
    max_calls: int = 5,
    instructions: str = "",
    tools: Sequence[str] = ("search",),
    max_context: int = 12_000,
    gain: float = 0.0,
    redundancy: float = 0.0,
    ask: Literal["answer", "rank", "rate", "facts"] = "answer",
    passages: int = 6,
) -> Search | Browse | Evidence | Passages:
    """Question answering with `tools["search"]: query -> passages`. At most `max_calls` searches; one more ends the
    episode with 0.

    `tools`: with more tools than `search`, the model can open and read the pages (`training.env._browse`), and
    `max_context` is the number of characters that all results may have together. `gain`, `redundancy`: the reward of a
    search for new evidence, and for repeated passages (`training.env._evidence`; with `search` alone). `ask`: instead
    of the answer the model gives an order of `passages` passages, a rating of one, or the facts about an entity
    (`training.env._passages`). Raises ValueError for an unknown tool, and for budgets below 1.
    """
    unknown = [t for t in tools if t not in TOOLS]
    if unknown or not tools:
        raise ValueError(
            f"the environment search has no tool {unknown[0] if unknown else ''!r}: its tools are {', '.join(TOOLS)}"
        )
    if max_calls < 1 or max_context < 1:
        raise ValueError(f"max_calls is {max_calls} and max_context {max_context}: both must be at least 1")
    if ask != "answer":
        if gain or redundancy or list(tools) != ["search"] or passages < 2:
            raise ValueError(
                f"ask: {ask} goes with the tool search alone, no gain and no redundancy, and at least 2 passages: set gain and redundancy to 0, or ask to answer"
            )
        return Passages(Search(max_calls, instructions), ask, passages, instructions)
    if list(tools) != ["search"]:
        if gain or redundancy:
            raise ValueError(
                "searches are rewarded for evidence where `search` is the only tool: set gain and redundancy to 0, or leave the others out"
            )
        return Browse(tuple(tools), max_calls, max_context, instructions)
    plain = Search(max_calls, instructions)
    return Evidence(plain, gain, redundancy) if gain or redundancy else plain
