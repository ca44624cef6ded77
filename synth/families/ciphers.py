"""Read a message in a simple cipher.

Certificate: the drawn words enciphered letter by letter against the text deciphered with a table. Difficulty axes:
words, kinds of ciphers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"words": 1, "kinds": 1}, {"words": 2, "kinds": 2}, {"words": 3, "kinds": 3}, {"words": 5, "kinds": 3})
CERTIFICATE = ("enciphered letter by letter", "the text deciphered with a table")
WORDINGS = Wordings(
    "Decipher {code}. {rule}.",
    "What does the message {code} say? {rule}.",
    "{rule}. Read the secret text {code}.",
    "A spy received {code}. {rule}. What was the original text?",
    "The ciphertext is {code}. {rule}. Find the plain text.",
    answer="Answer with the original words in capital letters.",
    code="[A-Z ]+",
    rule=r"Each letter was moved \d+ places forward in the alphabet, with A after Z|Each letter was replaced by its mirror image in the alphabet, A by Z, B by Y and so on|Each letter was moved forward in the alphabet by the next letter of the keyword [A-Z]+, used again and again, where A moves by 0, B by 1 and so on; spaces use no letter of the keyword",
)
WORDS = "APPLE BREAD CHAIR DREAM EARTH FLAME GRASS HOUSE ISLAND JUNGLE KNIGHT LEMON MARKET NIGHT OCEAN PAPER QUEEN RIVER STONE TABLE UNCLE VALLEY WINTER YELLOW ZEBRA BRIDGE CANDLE DRAGON FOREST GARDEN".split()
KEYS = ("CAB", "KEY", "MOON", "ROSE", "SWAN", "TIGER", "LAMP")
Spec = tuple[Sequence[str], str, str]


def ciphers(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: capital letters. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="ciphers",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, words: int, kinds: int) -> tuple[str, Spec]:
    chosen, kind = rng.sample(WORDS, words), ("shift", "mirror", "keyword")[rng.randrange(kinds)]
    key = str(rng.randint(2, 24)) if kind == "shift" else rng.choice(KEYS) if kind == "keyword" else ""
    return f"{chosen} {kind} {key}", (chosen, kind, key)


def pose(spec: Spec) -> dict[str, Any]:
    words, kind, key = spec
    code, used = "", 0
    for c in " ".join(words):
        if c == " ":
            code += c
            continue
        place = ord(c) - 65
        move = int(key) if kind == "shift" else ord(key[used % len(key)]) - 65 if kind == "keyword" else 25 - 2 * place
        code += chr((place + move) % 26 + 65)
        used += 1
    rule = {
        "shift": f"Each letter was moved {key} places forward in the alphabet, with A after Z",
        "mirror": "Each letter was replaced by its mirror image in the alphabet, A by Z, B by Y and so on",
        "keyword": f"Each letter was moved forward in the alphabet by the next letter of the keyword {key}, used again and again, where A moves by 0, B by 1 and so on; spaces use no letter of the keyword",
    }[kind]
    return {"prompt": WORDINGS.write(code=code, rule=rule), "answer": " ".join(words), "verifier": "exact"}


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    alphabet, rule = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", fields["rule"]
    if "mirror" in rule:
        tables = [dict(zip(alphabet, reversed(alphabet), strict=True))]
    else:
        key = re.findall(r"keyword ([A-Z]+)", rule)
        moves = [alphabet.index(c) for c in key[0]] if key else integers(rule)
        tables = [dict(zip(alphabet[m:] + alphabet[:m], alphabet, strict=True)) for m in moves]
    out, used = "", 0
    for c in fields["code"]:
        out += tables[used % len(tables)].get(c, c)
        used += c != " "
    return out
