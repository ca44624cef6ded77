"""The fewest moves that bring scattered discs of a Tower of Hanoi onto one peg.

Certificate: recursion from the largest disc on the values against a search through all positions from the text.
Difficulty axes: discs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"discs": 3}, {"discs": 4}, {"discs": 5}, {"discs": 6})
CERTIFICATE = ("recursion from the largest disc", "a search through all positions")
WORDINGS = Wordings(
    "Tower of Hanoi: {n} discs of sizes 1 to {n} lie on the pegs {pegs} in this order, disc 1 first. How many moves does it take at least to bring all to peg {goal}?",
    "In a Tower of Hanoi the discs 1 (smallest) to {n} lie on the pegs {pegs}. What is the least number of moves after which all lie on peg {goal}?",
    "The discs of a Tower of Hanoi, from the smallest to the largest of {n}, stand on pegs {pegs}. Find the fewest moves that gather them on peg {goal}.",
    "Pegs A, B and C hold {n} discs; listed from the smallest disc to the largest, they are on {pegs}. With as few moves as possible all are brought to {goal}. Count the moves.",
    "Someone stopped in the middle of a Tower of Hanoi with {n} discs: from the smallest to the largest they are on {pegs}. What is the smallest number of moves still needed until all are on {goal}?",
    answer="One disc is moved at a time, onto an empty peg or a larger disc. Answer with one integer.",
    pegs="[ABC](?: [ABC])+",
    goal="[ABC]",
)
Spec = tuple[list[str], str]


def hanoi_moves(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="hanoi_moves",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, discs: int) -> tuple[str, Spec]:
    while True:
        pegs, goal = [rng.choice("ABC") for _ in range(discs)], rng.choice("ABC")
        if set(pegs) != {goal}:
            return f"{pegs} {goal}", (pegs, goal)


def moves(pegs: Sequence[str], goal: str) -> int:
    """The largest disc moves once, if at all, and the smaller ones wait for it on the third peg."""
    if not pegs:
        return 0
    if pegs[-1] == goal:
        return moves(pegs[:-1], goal)
    (third,) = set("ABC") - {pegs[-1], goal}
    return moves(pegs[:-1], third) + 2 ** (len(pegs) - 1)


def pose(spec: Spec) -> dict[str, Any]:
    pegs, goal = spec
    return {
        "prompt": WORDINGS.write(n=len(pegs), pegs=" ".join(pegs), goal=goal),
        "answer": str(moves(pegs, goal)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    start, goal = fields["pegs"].replace(" ", ""), fields["goal"] * len(fields["pegs"].split())
    steps, waiting = {start: 0}, deque([start])
    while goal not in steps:
        here = waiting.popleft()
        for disc, peg in enumerate(here):
            for other in "ABC":
                if peg not in here[:disc] and other not in here[: disc + 1]:
                    there = here[:disc] + other + here[disc + 1 :]
                    if there not in steps:
                        steps[there] = steps[here] + 1
                        waiting.append(there)
    return str(steps[goal])
