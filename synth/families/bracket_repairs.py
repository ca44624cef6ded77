"""The fewest brackets to put in so that a text of two kinds of brackets is balanced.

Certificate: a table over parts of the text on the values against a memory of what must still be closed. Difficulty axes: length of the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"n": 8}, {"n": 14}, {"n": 20}, {"n": 28})
CERTIFICATE = ("a table over parts of the text", "a memory of what must still be closed")
WORDINGS = Wordings(
    "What is the length of the shortest balanced text of brackets that holds {text} in its order?",
    "Brackets are put into {text}, at any places, until it is balanced. How long is the result at least?",
    "Find the length of the shortest correctly nested bracket text from which {text} is left when some brackets are struck out.",
    "The text {text} is repaired by adding brackets so that all match. What is the smallest length that it can have then?",
    "How many brackets does the shortest balanced supersequence of {text} have?",
    answer="Answer with one integer.",
    text=r"[()\[\]]+",
)
Spec = str


def bracket_repairs(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="bracket_repairs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, n: int) -> tuple[str, Spec]:
    text = "".join(rng.choice("()[]") for _ in range(rng.randint(n // 3, n)))
    return text, text


def pose(spec: Spec) -> dict[str, Any]:
    n, pairs = len(spec), {"()", "[]"}
    add = [[0] * (n + 1) for _ in range(n + 1)]  # brackets that spec[i:j] lacks
    for length in range(1, n + 1):
        for i in range(n - length + 1):
            j = i + length
            ways = [add[i][k] + add[k][j] for k in range(i + 1, j)] + ([1] if length == 1 else [])
            if length > 1 and spec[i] + spec[j - 1] in pairs:
                ways.append(add[i + 1][j - 1])
            add[i][j] = min(ways)
    return {
        "prompt": WORDINGS.write(text=spec),
        "answer": str(n + add[0][n]),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    text = WORDINGS.read(question)["text"]
    reached = {"": 0}  # what is open -> brackets of the shortest beginning that leaves it
    for c in text:
        after: dict[str, int] = {}
        for open_, length in reached.items():
            if c in "([":
                ways = [(open_ + c, length + 1)]
            else:
                mate, ways = {")": "(", "]": "["}[c], [(open_, length + 2)]
                for at in range(len(open_) - 1, -1, -1):  # close what stands above a mate, then it
                    if open_[at] == mate:
                        ways.append((open_[:at], length + len(open_) - at))
            for state, steps in ways:
                after[state] = min(steps, after.get(state, steps))
        reached = after
    return str(min(length + len(open_) for open_, length in reached.items()))
