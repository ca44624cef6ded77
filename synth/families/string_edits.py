"""Edit a string of letters in described steps.

Certificate: slices and methods of the drawn string against letter-by-letter loops over the text. Difficulty axes:
steps, length.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"steps": 1, "length": 6}, {"steps": 2, "length": 8}, {"steps": 3, "length": 10}, {"steps": 5, "length": 14})
CERTIFICATE = ("slices and methods on the values", "loops over the letters of the text")
VOWELS = "aeiou"
WORDINGS = Wordings(
    "Take {word}: {steps}. What is it then?",
    "Begin with the letters {word}. Do this in order: {steps}. What is left?",
    "What becomes of {word} if you {steps}?",
    "Edit the string {word} step by step: {steps}.",
    "A text editor holds {word}. Its commands are: {steps}. What does it hold at the end?",
    answer="Answer with the letters that result and nothing else.",
    word="[a-z]+",
    steps=r"[\w ,]+",
)
_PHRASES = [
    ("reverse", re.compile("reverse it")),
    ("upper", re.compile("write the vowels as capitals")),
    ("replace", re.compile("replace each ([a-z]) by ([a-z])")),
    ("delete", re.compile("delete each ([a-z])")),
    ("double", re.compile("double each ([a-z])")),
    ("rotate", re.compile("move the first ([0-9]) letters to the end")),
    ("second", re.compile("keep every second letter, from the first")),
    ("swap", re.compile("swap the first and the last letter")),
]
Step = tuple[str, tuple[str, ...]]
Spec = tuple[str, list[Step]]


def string_edits(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the edited string, letter case included. `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="string_edits",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, steps: int, length: int) -> tuple[str, Spec]:
    while True:
        letters = rng.sample("abcdefghijklmnoprstuvw", 7) + [rng.choice(VOWELS)]
        word = "".join(rng.choice(letters) for _ in range(rng.randint(length - 2, length)))
        chosen: list[Step] = []
        for name in rng.sample([name for name, _ in _PHRASES], steps):
            kept = {"replace": (rng.choice(word), rng.choice("xyz")), "rotate": (str(rng.randint(1, 3)),)}
            chosen.append((name, kept.get(name, (rng.choice(word),) if name in ("delete", "double") else ())))
        if len(_values(word, chosen)[-1]) > 1 and word not in _values(word, chosen):
            return f"{word} {chosen}", (word, chosen)


def apply(step: Step, s: str) -> str:
    name, args = step
    match name:
        case "reverse":
            return s[::-1]
        case "upper":
            return s.translate({ord(v): v.upper() for v in VOWELS})
        case "replace":
            return s.replace(args[0], args[1])
        case "delete":
            return s.replace(args[0], "")
        case "double":
            return s.replace(args[0], args[0] * 2)
        case "rotate":
            return s[int(args[0]) :] + s[: int(args[0])]
        case "second":
            return s[::2]
        case _:
            return s[-1] + s[1:-1] + s[0] if len(s) > 1 else s


def _values(word: str, steps: list[Step]) -> list[str]:
    out = [word]
    for step in steps:
        out.append(apply(step, out[-1]))
    return out[1:]


def pose(spec: Spec) -> dict[str, Any]:
    word, steps = spec
    patterns = dict(_PHRASES)
    texts = []
    for name, args in steps:
        text = patterns[name].pattern
        for arg in args:
            text = re.sub(r"\(\[[^)]*\)", arg, text, count=1)
        texts.append(text)
    values = _values(word, steps)
    return {
        "prompt": WORDINGS.write(word=word, steps=", then ".join(texts)),
        "answer": values[-1],
        "verifier": "literal",
        "working": ", ".join(values[:-1]),
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    word = read["word"]
    for text in read["steps"].split(", then "):
        word = _edit(text, word)
    return word


def _edit(text: str, word: str) -> str:
    name, match = next(((n, m) for n, p in _PHRASES if (m := p.fullmatch(text))), ("", None))
    if match is None:
        raise Refused(f"roundtrip: {text!r} names no edit")
    out: list[str] = []
    if name in ("rotate", "swap"):
        out = list(word)
        for _ in range(int(match[1]) if name == "rotate" and int(match[1]) < len(out) else 0):
            out.append(out.pop(0))
        if name == "swap":
            out[0], out[-1] = out[-1], out[0]
        return "".join(out)
    for i, c in enumerate(word):
        if name == "reverse":
            out.insert(0, c)
        elif name == "upper":
            out.append(chr(ord(c) - 32) if c in VOWELS else c)
        elif name == "second":
            out += [c] * (i % 2 == 0)
        elif c != match[1]:
            out.append(c)
        elif name == "replace":
            out.append(match[2])
        elif name == "double":
            out += [c, c]
    return "".join(out)
