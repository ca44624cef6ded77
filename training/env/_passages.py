"""Tasks about passages, instead of answering the question. Hosted by the piece `search`.

rank    the passages are to be put in order: ReasonRank, 2025, "ReasonRank: Empowering Passage Ranking with Strong
        Reasoning Ability" (arXiv 2508.07050). The grade of a passage is how many facts it states of those that the
        answer rests on; scored by the verifier `ranked_list` (parts ndcg, recall, rbo)
rate    one passage is to be rated from 0 to 100: "Retro*: Optimizing LLMs for Reasoning-Intensive Document Retrieval",
        2025 (arXiv 2509.24869). Parts score (0 to 100) and relevant (1 where it states such a fact); the value is 1
        less the distance between them. An answer that is not a number counts as the worst possible rating
facts   after searches, what is known of an entity is to be stated, one sentence per line: "Knowledge-Level Consistency
        Reinforcement Learning: Dual-Fact Alignment for Long-Form Factuality", 2025 (arXiv 2509.23765). A claim is true
        if it repeats the words of a passage about the entity. Parts recall, precision (0 where nothing is claimed),
        general (whether the entity is named), format (whether it answered); the value is F1

Half of the passages shown state a fact of the problem's lineage, the others are further results of a search for the
question. The choice and the order depend on the problem alone, so all samples of a group see the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from synth.types import Message, Problem, Score, Scored, seed_for
from synth.verify import extract_answer
from synth.verify.ranked_list import ranked_list
from training.env import Env, system

RANK = "Rank the passages by what they say to this question, in <answer>[2] > [1] > ...</answer>."
RATE = "How relevant is the passage to this question, from 0 to 100? <answer>number</answer>"
FACTS = "State what is known of {}, a sentence a line, in <answer>...</answer>."


@dataclass(frozen=True)
class Passages:
    inner: Env
    ask: Literal["rank", "rate", "facts"]
    passages: int
    instructions: str

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        tool: Any = tools.get("search")
        if not hasattr(tool, "hits") or not hasattr(tool, "passages"):
            raise LookupError(
                f"problem {problem.id} is to be asked about passages, but its search tool does not say which facts they state"
            )
        gold = set(problem.lineage.get("facts", ()))
        mixed = lambda p: seed_for(0, problem.id, p.id)  # noqa: E731
        stating = sorted({p.id: p for f in gold for p in _stating(tool).get(f, ())}.values(), key=mixed)
        others = [p for p in tool.hits(problem.question) if not set(p.facts) & gold]
        others += [p for p in sorted(tool.passages[:50], key=mixed) if not set(p.facts) & gold and p not in others]
        if self.ask == "facts":
            state, _ = self.inner.start(problem, tools)
            about = (stating or others)[0]
            lines = {_words(p.text) for p in tool.passages if p.entity == about.entity}
            question = f"{FACTS.format(about.title)}"
            return {**state, "true": lines, "title": about.title}, self._asked(question)
        if self.ask == "rate":
            relevant = bool(stating) and seed_for(0, problem.id, "relevant") % 2 == 0
            shown = (stating if relevant else others)[:1]
            question = f"{problem.question}\nPassage: {shown[0].text}\n{RATE}"
            return {"problem": problem, "relevant": float(relevant)}, self._asked(question)
        half = stating[: max(self.passages // 2, 1)]
        shown = sorted([*half, *others[: self.passages - len(half)]], key=mixed)
        listed = "\n".join(f"[{i}] {p.text}" for i, p in enumerate(shown, 1))
        relevance = [float(len(set(p.facts) & gold)) for p in shown]
        return {"problem": problem, "relevance": relevance}, self._asked(f"{problem.question}\n{listed}\n{RANK}")

    def _asked(self, text: str) -> list[Message]:
        return [*system(self.instructions), Message(role="user", content=text)]

    def step(self, state: dict, text: str) -> tuple[Sequence[Message], bool, Score | None]:
        answer = extract_answer(text)
        if self.ask == "facts" and answer is None:
            replies, over, score = self.inner.step(state, text)
            return replies, over, _stated(state, "", False) if over else score
        if self.ask == "facts":
            return [], True, _stated(state, answer or "", True)
        answered = {"answered": float(answer is not None)}
        if self.ask == "rate":
            given = float(answer) if answer is not None and answer.isascii() and answer.isdigit() else 101.0
            read = given <= 100
            rating = given if read else 100.0 * (1 - state["relevant"])
            value = 1 - abs(rating / 100 - state["relevant"]) if read else 0.0
            parts = {"parsed": float(read), "score": rating, "relevant": state["relevant"], **answered}
            return [], True, Scored(value=value, parts=parts)
        relevance = state["relevance"]
        best = sorted(range(len(relevance)), key=lambda i: (-relevance[i], i))
        taught = replace(state["problem"], answer=" > ".join(f"[{i + 1}]" for i in best))
        score = ranked_list(taught, answer or "", relevance=relevance)
        return [], True, replace(score, parts={**score.parts, **answered}) if isinstance(score, Scored) else score


def _stated(state: Mapping[str, Any], answer: str, answered: bool) -> Scored:
    claims = {c for line in answer.splitlines() if (c := _words(line))}
    hit = len(claims & state["true"])
    parts = {
        "recall": hit / len(state["true"]),
        "precision": hit / max(len(claims), 1),
        "general": float(state["title"].casefold() in answer.casefold()),
        "format": float(answered),
        "answered": float(answered),
        "calls": float(state["calls"]),
    }
    return Scored(value=2 * hit / (len(claims) + len(state["true"])), parts=parts)


def _words(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


@lru_cache(maxsize=4)
def _stating(tool: Any) -> dict[str, list[Any]]:
    """Fact -> the passages of a search tool that state it."""
    by_title: dict[str, list[Any]] = {}
    for p in tool.passages:
        for f in p.facts:
            by_title.setdefault(f, []).append(p)
    return by_title
