"""The value of a cell of a small spreadsheet.

Certificate: cells filled in the order in which they were drawn against cells looked up from the text when they are
needed. Difficulty axes: cells, size of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"cells": 3, "size": 9}, {"cells": 5, "size": 12}, {"cells": 8, "size": 12}, {"cells": 12, "size": 20})
CERTIFICATE = ("cells in the order drawn", "cells looked up when needed")
WORDINGS = Wordings(
    "A spreadsheet holds {cells}. What is shown in {goal}?",
    "Cells of a table: {cells}. Find the value of {goal}.",
    "The formulas of a sheet are {cells}. Which number does {goal} show?",
    "Given the cells {cells}, compute {goal}.",
    "In a spreadsheet one finds {cells}. What is the value of the cell {goal}?",
    answer="* is times. Answer with one integer.",
    cells=r"[A-D]\d: [-A-D\d+* ]+(?:; [A-D]\d: [-A-D\d+* ]+)*",
    goal=r"[A-D]\d",
)
Spec = tuple[list[tuple[str, str]], str, int]


def spreadsheets(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="spreadsheets",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, cells: int, size: int) -> tuple[str, Spec]:
    names = rng.sample([f"{c}{r}" for c in "ABCD" for r in range(1, 6)], cells)
    values: dict[str, int] = {}
    texts: list[tuple[str, str]] = []
    for i, name in enumerate(names):
        if i < max(1, cells // 4):
            values[name] = rng.randint(1, size)
            texts.append((name, str(values[name])))
            continue
        a, b, sign = rng.choice(names[max(0, i - 2) : i]), rng.choice(names[:i]), rng.choice("+-*")
        if sign == "*" and (abs(values[a]) > 99 or abs(values[b]) > 99):
            sign = "-"
        k = rng.randint(1, size)
        values[name] = {"+": values[a] + values[b], "-": values[a] - values[b], "*": values[a] * values[b]}[sign] + k
        texts.append((name, f"{a} {sign} {b} + {k}"))
    form = f"{sorted(texts)}"
    rng.shuffle(texts)
    return form, (texts, names[-1], values[names[-1]])


def pose(spec: Spec) -> dict[str, Any]:
    texts, goal, value = spec
    return {
        "prompt": WORDINGS.write(cells="; ".join(f"{name}: {text}" for name, text in texts), goal=goal),
        "answer": str(value),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    cells = dict(cell.split(": ") for cell in fields["cells"].split("; "))

    def value(name: str) -> int:
        parts = cells[name].split()
        if len(parts) == 1:
            return int(parts[0])
        a, sign, b, _, k = parts
        left, right = value(a), value(b)
        return (left * right if sign == "*" else left + right if sign == "+" else left - right) + int(k)

    return str(value(fields["goal"]))
