"""The longest text that two words hold in order, by its length.

Certificate: a table over both words on the values against rising places of equal letters. Difficulty axes: length of the words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"n": 7}, {"n": 12}, {"n": 20}, {"n": 32})
CERTIFICATE = ("a table over both words", "rising places of equal letters")
WORDINGS = Wordings(
    "How many letters must be struck out of {a} and {b} together at least, so that the same letters stay in both in the same order?",
    "Letters are deleted from {a} and from {b} until both read the same. What is the smallest number of deletions in all?",
    "Find the least number of letters to remove from {a} and {b}, counted together, so that two equal texts remain.",
    "The strings {a} and {b} shall become equal by deleting letters alone. How few deletions are enough?",
    "What is the fewest deletions, in both strings together, that make {a} and {b} the same?",
    answer="Answer with one integer.",
    a=r"[A-D]+",
    b=r"[A-D]+",
)
Spec = tuple[str, str]


def common_subsequences(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="common_subsequences",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, n: int) -> tuple[str, Spec]:
    a, b = ("".join(rng.choice("ABCD") for _ in range(rng.randint(n // 2, n))) for _ in range(2))
    return f"{min(a, b)} {max(a, b)}", (a, b)


def pose(spec: Spec) -> dict[str, Any]:
    a, b = spec
    row = [0] * (len(b) + 1)
    for x in a:
        before = row[:]
        for j, y in enumerate(b, 1):
            row[j] = before[j - 1] + 1 if x == y else max(before[j], row[j - 1])
    return {
        "prompt": WORDINGS.write(a=a, b=b),
        "answer": str(len(a) + len(b) - 2 * row[-1]),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    ends: list[int] = []  # the least last place of a rising run of each length
    for x in read["a"]:
        for place in reversed([j for j, y in enumerate(read["b"]) if x == y]):
            at = bisect_left(ends, place)
            ends[at : at + 1] = [place]
    return str(len(read["a"]) + len(read["b"]) - 2 * len(ends))
