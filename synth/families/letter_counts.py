"""Count letters: how often one occurs, how many different ones there are, how many words hold it.

Certificate: `str.count` and sets on the drawn words against a tally of the text kept letter by letter. Difficulty axes:
words, their length."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings, read_kind
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"words": 1, "length": 8, "letters": (8,)},
    {"words": 3, "length": 6, "letters": (8,)},
    {"words": 5, "length": 8, "letters": (4, 6, 8, 10, 12, 14)},
    {"words": 9, "length": 10, "letters": (6, 8, 10, 12, 14, 16)},
)
CERTIFICATE = ("string methods on the values", "a tally over the text")
_FORM, _WORDS = "Answer with one integer.", "[a-z]+(?: [a-z]+)*"
WORDINGS = {
    "letter": Wordings(
        "How often is the letter {letter} in: {words}?",
        'Count the letter {letter} in "{words}".',
        'How many times does {letter} occur in "{words}"?',
        "Look at: {words}. How many of the letters are {letter}?",
        'Somebody types "{words}". How often is the key {letter} pressed?',
        answer=_FORM,
        letter="[a-z]",
        words=_WORDS,
    ),
    "different": Wordings(
        "How many different letters are in: {words}?",
        'Count the different letters of "{words}".',
        'How many letters of the alphabet occur in "{words}"?',
        "Look at: {words}. How many letters are used, if each is counted once?",
        'A stamp prints one letter, as often as it is needed. How many stamps does it take to print "{words}"?',
        answer=_FORM,
        words=_WORDS,
    ),
    "words": Wordings(
        "How many words hold the letter {letter} in: {words}?",
        'Count the words of "{words}" that have the letter {letter}.',
        'In how many words of "{words}" does {letter} occur?',
        "Look at: {words}. How many of the words are written with the letter {letter}?",
        "Strike out every word without the letter {letter}: {words}. How many words are left?",
        answer=_FORM,
        letter="[a-z]",
        words=_WORDS,
    ),
}
DRAWS = 12
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
    """One of several problems, chosen by its answer (`by_answer`): no count is the most common by far."""
    kind, letter, chosen = by_answer(rng, lambda r: _once(r, words, length, letters), DRAWS)
    return f"{kind} {letter if kind != 'different' else ''} {sorted(chosen)}", (kind, letter, chosen)


def _once(rng: Random, words: int, length: int, letters: Sequence[int]) -> tuple[int, Spec]:
    """A problem with its answer. The words are made of so many different letters as one of `letters` says, so that where
    there are many words the answers are not mostly that number."""
    alphabet = rng.sample("abcdefghiklmnoprstuvw", letters[0] if len(letters) == 1 else rng.choice(letters))
    chosen = tuple("".join(rng.choice(alphabet) for _ in range(rng.randint(length // 2, length))) for _ in range(words))
    kind, letter = rng.choice(tuple(WORDINGS)[: 3 if words > 1 else 2]), rng.choice(alphabet)
    return counted(kind, letter, chosen), (kind, letter, chosen)


def counted(kind: str, letter: str, words: Sequence[str]) -> int:
    """The answer, from the values."""
    counts = [w.count(letter) for w in words]
    return {"letter": sum(counts), "different": len(set("".join(words))), "words": sum(c > 0 for c in counts)}[kind]


def pose(spec: Spec) -> dict[str, Any]:
    kind, letter, words = spec
    about = {} if kind == "different" else {"letter": letter}
    return {
        "prompt": WORDINGS[kind].write(words=" ".join(words), **about),
        "answer": str(counted(kind, letter, words)),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": ", ".join(f"{w}: {w.count(letter)}" for w in words) if about else "",
    }


def solve(question: str) -> str:
    kind, read = read_kind(WORDINGS, question)
    tally: dict[str, int] = {}
    words_with: dict[str, int] = {}
    inside: set[str] = set()
    for c in f"{read['words']} ":
        if c == " ":
            for x in inside:
                words_with[x] = words_with.get(x, 0) + 1
            inside = set()
        else:
            tally[c] = tally.get(c, 0) + 1
            inside.add(c)
    return str(
        len(tally) if kind == "different" else (tally if kind == "letter" else words_with).get(read["letter"], 0)
    )
