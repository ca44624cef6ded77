"""Shared by makers of pairs: verdicts, steps of a solution, the pair and the quarantined row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from synth.types import Generate, Message, PreferencePair, Problem, Quarantined, Sampling, Scored, seed_for
from synth.verify import extract_answer, verify

SENTENCE = re.compile(r"(?<=[.?!])\s+|(?<=\n)")
_STEP = re.compile(r"(?<=[,;.?!])\s+|(?<=\n)|(?=<answer>)")


def right(problem: Problem, text: str) -> bool | None:
    """Whether the answer in a text is right; None where it cannot be scored. A text without an answer is wrong."""
    score = verify(problem, extract_answer(text))
    return score.value == 1.0 if isinstance(score, Scored) else None


def steps(text: str, cut: re.Pattern[str] = _STEP) -> list[str]:
    """The steps of a solution, whose concatenation is the text: split after commas, full stops and line ends, and
    before the answer."""
    cuts = [0, *sorted({m.end() for m in cut.finditer(text)} - {0, len(text)}), len(text)]
    return [text[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if b > a]


def first_difference(a: str, b: str) -> int:
    """The length of the common prefix of two texts."""
    n = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return n


def ask(generate: Generate, conversation: Sequence[Message], n: int, *key: Any, max_tokens: int = 512) -> list[str]:
    """n completions of one conversation, each with a seed of its own."""
    out = []
    for k in range(n):
        out += generate([conversation], Sampling(max_tokens=max_tokens, seed=seed_for(*key, k)))
    return out


def continued(prompt: Sequence[Message], begun: str) -> tuple[Message, ...]:
    """The conversation with the assistant's message begun, to be continued; unchanged if there is no text yet."""
    return (*prompt, Message(role="assistant", content=begun)) if begun else tuple(prompt)


def made(
    problem: Problem,
    maker: str,
    chosen: str,
    rejected: str,
    *,
    margin: float | None = 1.0,
    prompt: Sequence[Message] = (),
    **columns: Any,
) -> PreferencePair:
    """The pair; `shared`, the length of the common prefix of both sides, is among its columns."""
    base: Mapping[str, Any] = {
        "group": problem.lineage.get("root", problem.id),
        "shared": first_difference(chosen, rejected),
    }
    return PreferencePair.make(
        prompt=prompt or problem.prompt,
        chosen=chosen,
        rejected=rejected,
        source=f"{maker}/{problem.family}",
        problem=problem.id,
        margin=margin,
        columns={**base, **columns},
        split=problem.split,
    )


def quarantined(problem: Problem, index: int, reason: str, evidence: str) -> Quarantined:
    return Quarantined(id=f"{problem.id}/{index}", stage="preferences", reason=reason, evidence=evidence[:500])
