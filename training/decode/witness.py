"""NFL-HR: a question for a number is also a statement that there is one, and an answer is a witness that can be checked.

"Let's Reason Formally: Natural-Formal Hybrid Reasoning Enhances LLM's Math Capability" 2025 (arXiv 2505.23703); read in
the abstract, the rules are our reading.

    "find x such that P(x)"  ->  exists x, P(x)
    n answers to the question, m to the question with the statement behind it
    y = the first answer whose number x makes P(x) true; where there is none, what most answers agree on

P is read of the prompt (training/decode/_predicate.py: comparisons of whole numbers; nothing is run), and so the checked
answers are right. A prompt that states nothing of the kind gets a vote over n + m answers. check: False is the control,
the vote alone.

Leaves out a prover and a formal language of its own: the statement is a comparison, and the witness an answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from synth.types import seed_for
from training.decode import Ask, Decoded, Draw, Engine
from training.decode._draws import draws
from training.decode._predicate import holds, stated

FORMAL = "(There is a whole number x with {p}.)\n"
NUMBER = re.compile(r"-?\d{1,12}")


def witness(
    engine: Engine, asks: Sequence[Ask], fitted: Any, *, n: int = 8, m: int = 8, check: bool = True
) -> list[Decoded]:
    if n < 1 or m < 0:
        raise ValueError(f"n is {n} and m {m}: n answers are 1 or more, m to the statement 0 or more")
    drawn = draws(engine, asks, n)
    statements = [stated(engine.text(ask.prompt)) for ask in asks]
    batch: list[tuple[int, Draw]] = []
    for i, (ask, one, p) in enumerate(zip(asks, drawn, statements, strict=True)):
        hint = engine.ids(FORMAL.format(p=p)) if p and engine.ids is not None else np.zeros(0, dtype=np.int64)
        prompt = np.concatenate([ask.prompt, hint])
        for j in range(int(max(0, min(m, (one.account.left - len(prompt)) // ask.max_tokens)))):
            seed = seed_for(ask.seed, "formal", j)
            batch.append((i, Draw(account=one.account, prompt=prompt, seed=seed, max_tokens=ask.max_tokens)))
    for (i, _), segment in zip(batch, engine.sample([d for _, d in batch]), strict=True):
        drawn[i].segments.append(segment)
    out = []
    for one, p in zip(drawn, statements, strict=True):
        answers = [engine.said(s.ids) for s in one.segments]
        checked = [i for i, a in enumerate(answers) if check and p and _is_witness(p, a)]
        votes = Counter(a for a in answers if a)
        place = checked[0] if checked else max(range(len(answers)), key=lambda i: (votes[answers[i]], -i))
        one.account.events.append(
            f"{len(checked)} of {len(answers)} answers are checked witnesses" if p else "no statement"
        )
        out.append(Decoded(segment=one.segments[place], account=one.account))
    return out


def _is_witness(statement: str, answer: str) -> bool:
    """Whether an answer is one whole number, and the statement true of it."""
    return bool(NUMBER.fullmatch(answer.strip())) and holds(statement, int(answer))
