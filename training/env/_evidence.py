"""Search in which every call is rewarded for the evidence that it adds, and charged for passages seen before. Hosted by
the piece `search`.

StepSearch, Wang et al. 2025, "StepSearch: Igniting LLMs Search Ability via Step-Wise Proximal Policy Optimization"
(arXiv 2505.15107); the gain alone, without the charge, is the progress of IM-RAG, Yang et al. 2024, "IM-RAG:
Multi-Round Retrieval-Augmented Generation Through Learning Inner Monologues" (arXiv 2405.13021).

    c_i = similarity of the best passage of this search with gold fact i, here 1 where a passage states it, else 0
    m_i = the maximum of c_i so far       G = mean_i max(c_i - m_i, 0)       P = share of the passages that an earlier
    search returned reward of the turn = gain * G - redundancy * P

The sum of G over an episode is the share of the gold facts that were found. The facts are those of the problem's
lineage; the search tool must say which facts a passage states (`hits`), as the one over a knowledge base does. The
score has the parts `evidence` (that share), `right` (the value of the score), `right_evidence` (the same share, under
the name that the reward `evidence_gated` reads) and `repeated` (passages returned again). Leaves out TF-IDF similarity
with passages that state no gold fact, and the reward for search keywords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from synth.types import Message, Problem, Score, Scored
from training.env import Env

_QUERY = re.compile(r"<search>(.*?)</search>", re.DOTALL)


@dataclass(frozen=True)
class Evidence:
    inner: Env
    gain: float
    redundancy: float

    def start(self, problem: Problem, tools: Mapping[str, Any]) -> tuple[dict, list[Message]]:
        state, messages = self.inner.start(problem, tools)
        if not hasattr(tools["search"], "hits"):
            raise LookupError(
                f"problem {problem.id} is to be rewarded for evidence, but its search tool does not say which facts it found"
            )
        return {
            **state,
            "gold": set(problem.lineage.get("facts", ())),
            "found": set(),
            "seen": set(),
            "again": 0.0,
        }, messages

    def step(self, state: dict, text: str) -> tuple[Sequence[Message], bool, Score | None]:
        calls = state["calls"]
        messages, over, score = self.inner.step(state, text)
        if state["calls"] > calls:
            query = _QUERY.search(text)
            hits = state["search"].hits(query.group(1)) if query else []
            new = {f for p in hits for f in p.facts} & state["gold"] - state["found"]
            again = sum(p.id in state["seen"] for p in hits)
            state["found"] |= new
            state["seen"] |= {p.id for p in hits}
            state["again"] += again
            gained = len(new) / len(state["gold"]) if state["gold"] else 0.0
            state["step_reward"] = self.gain * gained - self.redundancy * (again / len(hits) if hits else 0.0)
        if isinstance(score, Scored):
            share = len(state["found"]) / len(state["gold"]) if state["gold"] else 0.0
            score = replace(
                score,
                parts={
                    **score.parts,
                    "evidence": share,
                    "repeated": state["again"],
                    "right": score.value,
                    "right_evidence": share,
                },
            )
        return messages, over, score
