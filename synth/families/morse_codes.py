"""A message in Morse code read as words.

Certificate: a table of codes on the values against a walk through the tree of dots and dashes. Difficulty axes: length of the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"words": 1, "letters": 4},
    {"words": 2, "letters": 5},
    {"words": 3, "letters": 6},
    {"words": 5, "letters": 7},
)
CERTIFICATE = ("a table of codes", "a walk through the tree of dots and dashes")
WORDINGS = Wordings(
    "Which words does the Morse code {code} spell? A slash stands between words.",
    "A radio operator hears {code}, with a slash between words. What is the message?",
    "Decode {code} from Morse code, where a slash separates words.",
    "Read this Morse message, a slash after each word but the last: {code}",
    "Someone taps {code} in Morse code, with a slash between two words. Write the message in letters.",
    answer="Answer with the words in capital letters, separated by spaces.",
    code=r"[-./ ]+",
)
Spec = list[str]
MORSE = dict(
    zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --..".split(),
        strict=True,
    )
)
TREE = "  ETIANMSURWDKGOHVF L PJBXCYZQ"  # the children of place i are 2i (a dot) and 2i + 1 (a dash)


def morse_codes(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: words. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="morse_codes",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, words: int, letters: int) -> tuple[str, Spec]:
    letters_of = ["".join(rng.choice(list(MORSE)) for _ in range(rng.randint(3, letters))) for _ in range(words)]
    return " ".join(letters_of), letters_of


def pose(spec: Spec) -> dict[str, Any]:
    code = " / ".join(" ".join(MORSE[c] for c in word) for word in spec)
    return {"prompt": WORDINGS.write(code=code), "answer": " ".join(spec), "verifier": "exact"}


def solve(question: str) -> str:
    words = []
    for word in WORDINGS.read(question)["code"].split(" / "):
        letters = ""
        for sign in word.split():
            place = 1
            for mark in sign:
                place = 2 * place + (mark == "-")
            letters += TREE[place]
        words.append(letters)
    return " ".join(words)
