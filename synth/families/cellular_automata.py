"""A row of cells after some steps of a rule about three neighbours.

Certificate: shifted integers on the values against a table of triples over the text. Difficulty axes: cells, steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"cells": 6, "steps": 1}, {"cells": 8, "steps": 2}, {"cells": 10, "steps": 4}, {"cells": 14, "steps": 8})
CERTIFICATE = ("shifted integers", "a table of triples over the text")
WORDINGS = Wordings(
    "Cells {row} change at once, each by itself and its two neighbours: {rule}. What is the row after {k}?",
    "A one-dimensional cellular automaton has the rule {rule} (left neighbour, cell, right neighbour). From {row}, which row comes after {k}?",
    "Start with {row}. In a step each cell becomes what {rule} says of the three cells around it. Find the row after {k}.",
    "Every cell of {row} looks at its left neighbour, itself and its right neighbour and follows {rule}. Give the row after {k}.",
    "The row {row} develops by the table {rule}, applied to all cells at the same time. What does it become after {k}?",
    answer="Beyond both ends all cells are 0. Answer with the row.",
    row="[01]+",
    rule=r"[01]{3}>[01](?:, [01]{3}>[01]){7}",
    k=r"\d+ steps?",
)
Spec = tuple[int, str, int]


def cellular_automata(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a row of cells. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="cellular_automata",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, cells: int, steps: int) -> tuple[str, Spec]:
    while True:
        rule, row = 2 * rng.randint(1, 126), "".join(rng.choice("01") for _ in range(cells))
        if "1" in (after := later(rule, row, steps)) and after != row:
            return f"{rule} {row} {steps}", (rule, row, steps)


def later(rule: int, row: str, steps: int) -> str:
    width, cells = len(row), int(row, 2)
    for _ in range(steps):
        after = 0
        for triple in range(8):
            if rule >> triple & 1:
                left, here, right = cells >> 1, cells, cells << 1
                after |= (
                    (left if triple & 4 else ~left)
                    & (here if triple & 2 else ~here)
                    & (right if triple & 1 else ~right)
                )
        cells = after & ((1 << width) - 1)
    return f"{cells:0{width}b}"


def pose(spec: Spec) -> dict[str, Any]:
    rule, row, steps = spec
    table = ", ".join(f"{triple:03b}>{rule >> triple & 1}" for triple in range(7, -1, -1))
    return {
        "prompt": WORDINGS.write(row=row, rule=table, k=f"{steps} step{'s' if steps > 1 else ''}"),
        "answer": later(rule, row, steps),
        "verifier": "grid",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    table = dict(part.split(">") for part in fields["rule"].split(", "))
    row = fields["row"]
    for _ in range(int(fields["k"].split()[0])):
        wide = f"0{row}0"
        row = "".join(table[wide[i : i + 3]] for i in range(len(row)))
    return row
