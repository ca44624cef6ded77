"""The answer that most of k draws agree on.

Wang et al. 2022, "Self-Consistency Improves Chain of Thought Reasoning in Language Models" (arXiv 2203.11171).

    y = argmax_a  #{i <= k : answer(y_i) = a}

Answers are compared in normal form; a draw without an answer has no vote. Of answers with equally many votes, the one
drawn first wins, and its first draw is the returned turn. k = 0: as many draws as the budget allows; budget that short
answers leave unused pays for more. The prompt is read once per round of draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from training.decode import Ask, Decoded, Engine
from training.decode._draws import draws


def majority(engine: Engine, asks: Sequence[Ask], fitted: Any, *, k: int = 8) -> list[Decoded]:
    out = []
    for drawn in draws(engine, asks, k):
        answers = [engine.said(s.ids) for s in drawn.segments]
        votes = Counter(a for a in answers if a)
        best = max(votes.values(), default=0)
        place = next((i for i, a in enumerate(answers) if a and votes[a] == best), 0)
        out.append(Decoded(segment=drawn.segments[place], account=drawn.account))
    return out
