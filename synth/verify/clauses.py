"""A text that keeps every clause of a list: any such text is right.

Clauses are {"kind": ..., "n": number, "text": string}: words (exactly n), begins (with a letter), ends (with a word),
holds (a word), lacks (a letter), capitals (exactly n words in capitals), longest (no word longer than n letters).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

MAX_CHARS = 1000
FORM = "text"
EXAMPLE = {
    "prompt": "Write exactly 3 words, the last of them moon, one of them over.",
    "answer": "jump over moon",
    "args": {
        "clauses": [{"kind": "words", "n": 3}, {"kind": "ends", "text": "moon"}, {"kind": "holds", "text": "over"}]
    },
}
GIVES = ("kept", "c[1-9]")
KEEPS: dict[str, Callable[[list[str], Mapping[str, Any]], bool]] = {
    "words": lambda words, c: len(words) == c["n"],
    "begins": lambda words, c: words[0][0].lower() == c["text"],
    "ends": lambda words, c: words[-1].lower() == c["text"],
    "holds": lambda words, c: c["text"] in [w.lower() for w in words],
    "lacks": lambda words, c: c["text"] not in "".join(words).lower(),
    "capitals": lambda words, c: sum(w.isupper() for w in words) == c["n"],
    "longest": lambda words, c: max(map(len, words)) <= c["n"],
}


def words_of(text: str) -> list[str] | None:
    """The words: ASCII letters parted by spaces, lines or commas, an ending full stop forgiven; None for any other
    text."""
    text = text.strip().removesuffix(".")
    if len(text) > MAX_CHARS or not re.fullmatch(r"[A-Za-z]+(?:(?:\s*,\s*|\s+)[A-Za-z]+)*", text, re.ASCII):
        return None
    return re.split(r"[\s,]+", text)


def clauses(problem: Problem, answer: str, *, clauses: Sequence[Mapping[str, Any]] = ()) -> Score:
    """1 where every clause is kept. `parts["kept"]`: share of the clauses that are, c1, c2, ... each of them in the order of
    the question. The reference is checked alike."""
    gold = words_of(problem.answer)
    if gold is None or not clauses or not all(KEEPS[c["kind"]](gold, c) for c in clauses):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} breaks a clause")
    if (given := words_of(answer)) is None:
        return UNPARSABLE
    each = {f"c{i}": float(KEEPS[c["kind"]](given, c)) for i, c in enumerate(clauses, 1)}
    kept = sum(each.values()) / len(clauses)
    return Scored(value=float(kept == 1.0), parts={"parsed": 1.0, "kept": kept, **each})
