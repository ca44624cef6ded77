"""Find the hidden steps that turn example grids into others, and apply them: small ARC-like tasks (Chollet 2019, arXiv
1911.01547) with named steps.

Certificate: the drawn steps on rows of the values against every choice of steps, on cells by their places, that
explains the text's examples; all must agree. Difficulty axes: size of the grids, steps, examples.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"size": 3, "steps": 1, "examples": 1},
    {"size": 3, "steps": 2, "examples": 2},
    {"size": 4, "steps": 2, "examples": 2},
    {"size": 4, "steps": 3, "examples": 3},
)
CERTIFICATE = ("the drawn steps on rows", "every choice of steps that explains the examples")
STEPS = "mirror left-right, flip upside down, turn clockwise, let nonzero digits fall, swap 1 and 2, shift rows right with wrap"
WORDINGS = Wordings(
    "Examples: {pairs}. Each shows the same {k} out of: {steps}. What becomes of {test}?",
    "Each right grid comes from the left one by the same {k}: {pairs}. Possible steps: {steps}. Do the same to {test}.",
    "Find the hidden rule of {pairs}: {k} out of {steps}. Which grid does {test} become?",
    "{pairs}: every arrow stands for the same {k}, taken from {steps}. Transform {test} in this way.",
    "A machine does the same {k} each time, out of: {steps}. It turned {pairs}. What does it make of {test}?",
    answer="Answer with the grid, rows parted by /.",
    pairs=r"[\d/]+ -> [\d/]+(?:, [\d/]+ -> [\d/]+)*",
    test=r"[\d/]+",
    steps=re.escape(STEPS),
    k=r"\d steps?(?: in a fixed order)?",
)
Grid = tuple[str, ...]
Spec = tuple[list[tuple[Grid, Grid]], Grid, Grid, int]


def grid_transforms(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a grid. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="grid_transforms",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, steps: int, examples: int) -> tuple[str, Spec]:
    while True:
        rule = rng.sample(range(6), steps)
        grids = [
            tuple("".join(rng.choice("00123") for _ in range(size)) for _ in range(size)) for _ in range(examples + 1)
        ]
        pairs = [(g, run(rule, g)) for g in grids[:-1]]
        test, out = grids[-1], run(rule, grids[-1])
        fits = [r for r in permutations(range(6), steps) if all(run(r, g) == after for g, after in pairs)]
        if all(g != after for g, after in pairs) and out != test and all(run(r, test) == out for r in fits):
            return f"{sorted(pairs)} {test}", (pairs, test, out, steps)


def run(rule: Sequence[int], grid: Grid) -> Grid:
    for step in rule:
        match step:
            case 0:
                grid = tuple(row[::-1] for row in grid)
            case 1:
                grid = grid[::-1]
            case 2:
                grid = tuple("".join(column) for column in zip(*grid[::-1], strict=True))
            case 3:
                columns = [
                    "".join(x for x in column if x != "0").rjust(len(grid), "0") for column in zip(*grid, strict=True)
                ]
                grid = tuple("".join(row) for row in zip(*columns, strict=True))
            case 4:
                grid = tuple(row.translate({49: 50, 50: 49}) for row in grid)
            case _:
                grid = tuple(row[-1] + row[:-1] for row in grid)
    return grid


def pose(spec: Spec) -> dict[str, Any]:
    pairs, test, out, steps = spec
    told = ", ".join(f"{'/'.join(a)} -> {'/'.join(b)}" for a, b in pairs)
    return {
        "prompt": WORDINGS.write(
            pairs=told,
            test="/".join(test),
            steps=STEPS,
            k="1 step" if steps == 1 else f"{steps} steps in a fixed order",
        ),
        "answer": "/".join(out),
        "verifier": "grid",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pairs = [pair.split(" -> ") for pair in fields["pairs"].split(", ")]
    answers = set()
    for rule in permutations(range(6), int(fields["k"][0])):
        if all(_moved(rule, a) == b for a, b in pairs):
            answers.add(_moved(rule, fields["test"]))
    if len(answers) != 1:
        raise Refused(f"{'not_unique' if answers else 'impossible'}: {len(answers)} grids follow from the examples")
    return answers.pop()


def _moved(rule: Sequence[int], text: str) -> str:
    """The steps, cell by cell: where each digit goes."""
    n = text.index("/")
    cells = {divmod(i, n): x for i, x in enumerate(text.replace("/", ""))}
    for step in rule:
        after: dict[tuple[int, int], str] = {}
        for (r, c), x in cells.items():
            if step == 3:
                if x != "0":
                    after[n - 1 - sum(cells[below, c] != "0" for below in range(r + 1, n)), c] = x
            else:
                place = ((r, n - 1 - c), (n - 1 - r, c), (c, n - 1 - r), (r, c), (r, c), (r, (c + 1) % n))[step]
                after[place[0], place[1]] = {"1": "2", "2": "1"}.get(x, x) if step == 4 else x
        cells = {divmod(i, n): after.get(divmod(i, n), "0") for i in range(n * n)}
    return "/".join("".join(cells[r, c] for c in range(n)) for r in range(n))
