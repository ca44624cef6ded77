"""Count letters: how often one occurs, how many different ones there are, how many words hold it.

Certificate: `str.count` and sets on the drawn words against a tally of the text kept letter by letter. Difficulty axes:
words, their length."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"words": 1, "length": 8, "letters": (8,)},
    {"words": 3, "length": 6, "letters": (8,)},
    {"words": 5, "length": 8, "letters": (4, 6, 8, 10, 12, 14)},
    {"words": 9, "length": 10, "letters": (6, 8, 10, 12, 14, 16)},
)
CERTIFICATE = ("string methods on the values", "a tally over the text")
QUESTIONS = {
    "letter": "How often is the letter {} in: {}?",
    "different": "How many different letters are in: {1}?",
    "words": "How many words hold the letter {} in: {}?",
}
_TEXT = re.compile(
    r"How (?:often is the letter ([a-z])|many (different) letters are|many words hold the letter ([a-z])) in: ([a-z ]+)\?"
)
Spec = tuple[str, str, tuple[str, ...]]


def letter_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="letter_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, words: int, length: int, letters: Sequence[int]) -> tuple[str, Spec]:
    """The words are made of so many different letters as one of `letters` says, so that where there are many words the
    answers are not mostly that number."""
    alphabet = rng.sample("abcdefghiklmnoprstuvw", letters[0] if len(letters) == 1 else rng.choice(letters))
    chosen = tuple("".join(rng.choice(alphabet) for _ in range(rng.randint(length // 2, length))) for _ in range(words))
    kind, letter = rng.choice(tuple(QUESTIONS)[: 3 if words > 1 else 2]), rng.choice(alphabet)
    return f"{kind} {letter if kind != 'different' else ''} {sorted(chosen)}", (kind, letter, chosen)


def pose(spec: Spec) -> dict[str, Any]:
    kind, letter, words = spec
    counts = [w.count(letter) for w in words]
    answer = {"letter": sum(counts), "different": len(set("".join(words))), "words": sum(c > 0 for c in counts)}[kind]
    working = ", ".join(f"{w}: {c}" for w, c in zip(words, counts, strict=True)) if kind != "different" else ""
    return {
        "prompt": QUESTIONS[kind].format(letter, " ".join(words)),
        "answer": str(answer),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": working,
    }


def solve(question: str) -> str:
    letter, different, held, text = parsed(_TEXT, question).groups()
    tally: dict[str, int] = {}
    words_with: dict[str, int] = {}
    inside: set[str] = set()
    for c in f"{text} ":
        if c == " ":
            for x in inside:
                words_with[x] = words_with.get(x, 0) + 1
            inside = set()
        else:
            tally[c] = tally.get(c, 0) + 1
            inside.add(c)
    return str(len(tally) if different else words_with.get(held, 0) if held else tally.get(letter, 0))
