"""Question answering with `search`, `open` and `find`, within budgets of calls and of context. Hosted by the piece
`search`.

A turn is one of

    <search>query</search>           the best lines
    <open>page</open>                a page by its title, `<open>page | 2</open>` its second part
    <find>words</find>               lines of the page that was opened last (of all pages before that); `<find>words |
                                     page</find>` of another, `<find>words | *</find>` of all
    <answer>text</answer>            ends the episode; scored by the problem's verifier

Anything else ends it with score 0 (`malformed`). A result is cut to the remaining context. When the calls or the
context are used up, the model is told to answer, and one more call ends the episode with score 0. A repeated call is
answered again, and counted (`repeated`). The tools return text of documents: it stays in the role `tool`, with chat
markup broken up by spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.types import Message, Problem, Score, Scored
from synth.verify import extract_answer, verify
from training.env import system, thinks

LAST = "(No more calls: answer now.)"
_CALL = re.compile(r"<(search|open|find)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True)
class Browse:
    """tools: which of search, open, find may be used; max_calls: of all tools together; max_context: characters of all
    results together."""

    tools: tuple[str, ...]
    max_calls: int
    max_context: int
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        index = getattr(tools.get("search"), "index", None)
        if index is None:
            raise LookupError(
                f"problem {problem.id} is to be played with {', '.join(self.tools)}, but no search engine was given to the player"
            )
        state = {
            "problem": problem,
            "index": index,
            "calls": 0,
            "context": 0,
            "page": "",
            "seen": set(),
            "repeated": 0,
        }
        return state, [*system(self.instructions), *problem.prompt]

    def step(self, state: dict, text: str) -> tuple[list[Message], bool, Score | None]:
        answer = extract_answer(text)
        state["think"] = max(state.get("think", 0.0), thinks(text))
        parts = {k: float(state[k]) for k in ("calls", "context", "repeated", "think")}
        parts["answered"] = float(answer is not None)
        if answer is not None:
            score = verify(state["problem"], answer)
            return (
                [],
                True,
                Scored(value=score.value, parts={**score.parts, **parts}) if isinstance(score, Scored) else score,
            )
        call = _CALL.search(text)
        known = call is not None and call[1] in self.tools
        if not known or self._spent(state):
            return [], True, Scored(value=0.0, parts={**parts, "malformed": float(not known)})
        assert call is not None
        tool, argument = call[1], " ".join(call[2].split())
        state["calls"] += 1
        state["repeated"] += (tool, argument, state["page"]) in state["seen"]
        state["seen"].add((tool, argument, state["page"]))
        result = self._use(state, tool, argument)[: self.max_context - state["context"]]
        state["context"] += len(result)
        return [Message(role="tool", content=f"{result}\n{LAST}" if self._spent(state) else result)], False, None

    def _spent(self, state: Mapping[str, Any]) -> bool:
        return state["calls"] >= self.max_calls or state["context"] >= self.max_context

    def _use(self, state: dict, tool: str, argument: str) -> str:
        """The result of one call."""
        what, _, more = (
            (part.strip() for part in argument.rpartition(" | ")) if " | " in argument else (argument, "", "")
        )
        if tool == "search":
            return state["index"].search(argument)
        if tool == "find":
            return state["index"].find(what, "" if more == "*" else more or state["page"])
        page, part = (what, int(more)) if more.isascii() and more.isdigit() and len(more) < 7 else (argument, 1)
        view = state["index"].open(page, part)
        if state["index"].pages(page):
            state["page"] = page
        return view
