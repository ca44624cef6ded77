"""The edit distance of two strings: the fewest insertions, deletions and substitutions of one letter.

Certificate: the dynamic programme of Wagner and Fischer (1974) on the values against Ukkonen's furthest-reaching
diagonals (1985) on the text. Difficulty axes: length, and the largest distance: each up to it is as frequent, so that no
guess pays."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"length": 5, "edits": 5}, {"length": 7, "edits": 6}, {"length": 10, "edits": 8}, {"length": 14, "edits": 11})
CERTIFICATE = ("table of Wagner and Fischer", "furthest-reaching diagonals of Ukkonen")
WORDINGS = Wordings(
    "What is the edit distance from {a} to {b}?",
    "How few changes turn {a} into {b}?",
    "A typist wants to change the string {a} into {b} in as few steps as possible. How many steps does that take?",
    "Find the smallest number of changes that make {b} out of {a}.",
    "Two spellings, {a} and {b}, were found. What is the Levenshtein distance between them?",
    answer="One change inserts, deletes or replaces one letter. Answer with one integer.",
    a="[a-z]+",
    b="[a-z]+",
)


def edit_distance(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="edit_distance",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, length: int, edits: int) -> tuple[str, tuple[str, str]]:
    wanted = rng.randint(1, edits)
    while True:
        letters = rng.sample("abcdefghiklmnoprstuvw", 9)
        a = [rng.choice(letters) for _ in range(rng.randint(length - 1, length))]
        b = list(a)
        for _ in range(wanted + rng.randrange(2 + wanted // 2)):  # some edits undo or join others
            at, letter = rng.randrange(len(b)), rng.choice(letters)
            kind = rng.choice(("insert", "delete", "replace"))
            b[at : at + (kind != "insert")] = [] if kind == "delete" and len(b) > 2 else [letter]
        if distance("".join(a), "".join(b)) == wanted:
            break
    pair = "".join(a), "".join(b)
    return " ".join(sorted(pair)), pair


def distance(a: str, b: str) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, corner + (x != y))
    return row[-1]


def pose(pair: tuple[str, str]) -> dict[str, Any]:
    a, b = pair
    return {
        "prompt": WORDINGS.write(a=a, b=b),
        "answer": str(distance(a, b)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    """The first cost at which a diagonal reaches both ends; `reach[k]` is the furthest row on diagonal k at the present
    cost."""
    read = WORDINGS.read(question)
    a, b = read["a"], read["b"]
    goal, reach = len(b) - len(a), {0: _slide(a, b, 0, 0)}
    cost = 0
    while reach.get(goal, -1) < len(a):
        cost += 1
        before, reach = reach, {}
        for k in range(-cost, cost + 1):
            starts = (
                before.get(k, -1) + 1,
                before.get(k + 1, -1) + 1,
                before.get(k - 1, -1),
            )  # replace, delete, insert
            at = min(max(starts), len(a), len(b) - k)
            if at >= max(0, -k):
                reach[k] = _slide(a, b, at, k)
    return str(cost)


def _slide(a: str, b: str, at: int, k: int) -> int:
    while at < len(a) and at + k < len(b) and a[at] == b[at + k]:
        at += 1
    return at
