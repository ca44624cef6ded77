"""Apply a described sequence of functions to a list.

Certificate: the functions as comprehensions on the drawn values against loops that read the phrases of the text.
Difficulty axes: steps, length of the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._lists import Step, apply, draw_step, phrase, replay
from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"steps": 1, "length": 5}, {"steps": 2, "length": 6}, {"steps": 3, "length": 8}, {"steps": 5, "length": 10})
CERTIFICATE = ("comprehensions on the values", "loops over the phrases of the text")
WORDINGS = Wordings(
    "Take the list {numbers}: {steps}. What is the list then?",
    "Begin with {numbers}. Do this in order: {steps}. Which list is left?",
    "What becomes of the list {numbers} if you {steps}?",
    "Change the list {numbers} step by step: {steps}.",
    "A program reads {numbers}. Its commands are: {steps}. What does it print?",
    answer="Answer with the numbers in order, parted by spaces.",
    numbers=r"\d+(?: \d+)*",
    steps=r"[\w ,]+",
)
Spec = tuple[tuple[int, ...], list[Step]]


def list_functions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the resulting list, never empty. `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="list_functions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, steps: int, length: int) -> tuple[str, Spec]:
    while True:
        numbers = tuple(rng.randint(0, 20) for _ in range(rng.randint(length - 1, length)))
        chosen = [draw_step(rng) for _ in range(steps)]
        if all(len(values) for values in _values(numbers, chosen)):
            return f"{numbers} {chosen}", (numbers, chosen)


def _values(numbers: tuple[int, ...], steps: list[Step]) -> list[tuple[int, ...]]:
    out = [numbers]
    for step in steps:
        out.append(apply(step, out[-1]))
    return out[1:]


def pose(spec: Spec) -> dict[str, Any]:
    numbers, steps = spec
    values = [" ".join(map(str, v)) for v in _values(numbers, steps)]
    text = ", then ".join(map(phrase, steps))
    return {
        "prompt": WORDINGS.write(numbers=" ".join(map(str, numbers)), steps=text),
        "answer": values[-1],
        "verifier": "ordered_list",
        "working": "; ".join(values[:-1]),
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    values = [int(n) for n in read["numbers"].split()]
    for text in read["steps"].split(", then "):
        values = replay(text, values)
    return " ".join(map(str, values))
