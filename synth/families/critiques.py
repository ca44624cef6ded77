"""Which of four answers to a computation is right, if any? Each of the five replies is as frequent: a guess is right once
in five.

After Critique-Coder (Ruan et al. 2025, arXiv 2509.22824): the judgement is scored against what running the candidates
shows, never against an opinion. Certificate: the value by recursion decides the label, a shunting-yard over the text
proves it. Difficulty axes: terms, size of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._arithmetic import evaluate, grow, shunting_yard, write
from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"terms": 2, "size": 20}, {"terms": 3, "size": 50}, {"terms": 4, "size": 50}, {"terms": 6, "size": 99})
CERTIFICATE = ("recursion over the tree", "shunting-yard over the text")
PEOPLE = 4
WORDINGS = Wordings(
    "Four people computed {text} and found {claims}. Which of them is right?",
    "For {text} four students got {claims}. Whose result is right?",
    "A teacher asks for {text} and hears {claims}. Which of these answers is right?",
    "Four answers to {text} are {claims}. Check which of them is right.",
    "What is {text}? Four calculators show {claims}. Which one shows the right value?",
    answer="Answer 1, 2, 3, 4 or none.",
    text=r"[-+*() \d]+",
    claims=r"-?\d+, -?\d+, -?\d+ and -?\d+",
)


def critiques(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the number of a person, or none. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="critiques",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int) -> tuple[str, tuple]:
    tree = grow(rng, terms, "+-*", lambda r: Fraction(r.randint(1, size)))
    value = int(evaluate(tree, []))
    slips = [value + rng.choice((-1, 1)), value + rng.choice((-10, 10)), -value]
    slips += [value + sign * far for sign in (-1, 1) for far in rng.sample(range(2, 10), 2)]
    wrong = [s for s in dict.fromkeys(slips) if s != value]
    claims = rng.sample(wrong, PEOPLE)
    if (right := rng.randrange(PEOPLE + 1)) < PEOPLE:
        claims[right] = value
    return write(tree), (tree, value, claims)


def pose(spec: tuple) -> dict[str, Any]:
    tree, value, claims = spec
    steps: list[str] = []
    evaluate(tree, steps)
    return {
        "prompt": WORDINGS.write(text=write(tree), claims=listed([*map(str, claims)])),
        "answer": str(claims.index(value) + 1) if value in claims else "none",
        "verifier": "exact",
        "working": ", ".join(steps),
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    right = [i for i, claimed in enumerate(integers(read["claims"]), 1) if shunting_yard(read["text"]) == claimed]
    if len(right) > 1:
        raise Refused("not_unique: two people found the same")
    return str(right[0]) if right else "none"
