"""The fewest steps that measure an amount with two jugs.

Certificate: a search through all contents on the values against the two ways of always pouring in one direction,
from the text. Difficulty axes: size of the jugs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import gcd
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"size": 12, "least": 2}, {"size": 16, "least": 6}, {"size": 25, "least": 12}, {"size": 40, "least": 20})
CERTIFICATE = ("a search through all contents", "pouring always in one direction, both ways")
WORDINGS = Wordings(
    "Two empty jugs hold {a} and {b} litres. How many steps are needed at least until one of them holds exactly {c} litres?",
    "With a {a}-litre can and a {b}-litre can, both empty, and a tap, {c} litres are to be measured out in one of the cans. What is the fewest number of steps?",
    "You have an empty jug of {a} litres, an empty jug of {b} litres and a well. Find the least number of steps after which either jug holds exactly {c} litres.",
    "Buckets of {a} and {b} litres stand empty at a river. What is the smallest number of steps that leaves exactly {c} litres in one of them?",
    "Exactly {c} litres are wanted in one of two unmarked vessels of {a} and {b} litres, empty at first. In how few steps can this be done?",
    answer="A step fills one to the brim, empties one, or pours one into the other until that is full or the first is empty. Answer with one integer.",
)
Spec = tuple[int, int, int, int]


def water_jugs(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="water_jugs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, least: int) -> tuple[str, Spec]:
    while True:
        a, b = rng.sample(range(2, size + 1), 2)
        c = rng.randint(1, max(a, b) - 1)
        if c not in (a, b) and c % gcd(a, b) == 0 and (steps := fewest(a, b, c)) >= least:
            return f"{sorted((a, b))} {c}", (a, b, c, steps)


def fewest(a: int, b: int, c: int) -> int:
    steps, waiting = {(0, 0): 0}, deque([(0, 0)])
    while waiting:
        x, y = waiting.popleft()
        if c in (x, y):
            return steps[x, y]
        over, back = min(x, b - y), min(y, a - x)
        for state in ((a, y), (x, b), (0, y), (x, 0), (x - over, y + over), (x + back, y - back)):
            if state not in steps:
                steps[state] = steps[x, y] + 1
                waiting.append(state)
    return -1


def pose(spec: Spec) -> dict[str, Any]:
    a, b, c, steps = spec
    return {
        "prompt": WORDINGS.write(a=a, b=b, c=c),
        "answer": str(steps),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    a, b, c = (int(WORDINGS.read(question)[name]) for name in "abc")
    if c > max(a, b) or c % gcd(a, b):
        raise Refused("impossible: this amount cannot be measured")
    counts = []
    for first, second in ((a, b), (b, a)):
        x = y = steps = 0
        while c not in (x, y):
            if x == 0:
                x = first
            elif y == second:
                y = 0
            else:
                poured = min(x, second - y)
                x, y = x - poured, y + poured
            steps += 1
        counts.append(steps)
    return str(min(counts))
