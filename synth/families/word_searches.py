"""Where a word stands in a grid of letters.

Certificate: the place where it was written against every place and direction of the text. Difficulty axes: rows,
columns, letters of the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"rows": 4, "columns": 5, "letters": 3},
    {"rows": 6, "columns": 7, "letters": 4},
    {"rows": 8, "columns": 10, "letters": 5},
    {"rows": 11, "columns": 14, "letters": 6},
)
CERTIFICATE = ("the place where it was written", "every place and direction of the text")
WORDINGS = Wordings(
    "Find the word {word} in the grid {grid}. In which row and column is its first letter?",
    "In the grid of letters {grid}, where does {word} begin?",
    "The letters {grid} hide the word {word} once. Give the row and the column of its first letter.",
    "Word search: {grid}. Locate {word}; in which row and which column does it start?",
    "{word} is hidden once in {grid}. Name the row and column at which it starts.",
    answer="The word runs to the right, downwards, or diagonally down to the right. Rows are parted by /; rows and columns are counted from 1. Answer with row and column, parted by a space.",
    word="[A-Z]+",
    grid="[A-Z]+(?:/[A-Z]+)+",
)
WORDS = "SUN OAK TEA MAP OWL RAIN MOON LEAF SALT WOLF STONE RIVER PLANT BREAD CLOUD SPRING BRIDGE CASTLE GARDEN WINTER".split()
Spec = tuple[str, list[str], tuple[int, int]]


def word_searches(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: row and column. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="word_searches",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, rows: int, columns: int, letters: int) -> tuple[str, Spec]:
    while True:
        word = rng.choice([w for w in WORDS if len(w) == letters])
        p, q = rng.choice(((0, 1), (1, 0), (1, 1)))
        last = (rows - 1 - p * (letters - 1), columns - 1 - q * (letters - 1))
        if min(last) < 0:
            continue
        r, c = (rng.randint(0, n) for n in last)
        grid = [[rng.choice(word + "AEIRST") for _ in range(columns)] for _ in range(rows)]
        for k, x in enumerate(word):
            grid[r + k * p][c + k * q] = x
        text = ["".join(row) for row in grid]
        if len(places(word, text)) == 1:
            return f"{word} {text}", (word, text, (r, c))


def places(word: str, grid: Sequence[str]) -> list[tuple[int, int]]:
    """Where the word begins, by slices of lines: rows, columns, and rows moved left by their number."""
    width = len(grid[0])
    moved = ["." * (len(grid) - i) + row + "." * i for i, row in enumerate(grid)]
    turned = ["".join(column) for column in zip(*grid, strict=True)]
    slanted = ["".join(column) for column in zip(*moved, strict=True)]
    starts = lambda line: [i for i in range(len(line)) if line.startswith(word, i)]  # noqa: E731
    out = [(r, c) for r, line in enumerate(grid) for c in starts(line)]
    out += [(r, c) for c, line in enumerate(turned) for r in starts(line)]
    return out + [
        (r, k - len(grid) + r) for k, line in enumerate(slanted) for r in starts(line) if 0 <= k - len(grid) + r < width
    ]


def pose(spec: Spec) -> dict[str, Any]:
    word, grid, (r, c) = spec
    return {
        "prompt": WORDINGS.write(word=word, grid="/".join(grid)),
        "answer": f"{r + 1} {c + 1}",
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    cells = {(r, c): x for r, row in enumerate(fields["grid"].split("/"), 1) for c, x in enumerate(row, 1)}
    fits = []
    for r, c in cells:
        for p, q in ((0, 1), (1, 0), (1, 1)):
            k = 0
            while k < len(fields["word"]) and cells.get((r + k * p, c + k * q)) == fields["word"][k]:
                k += 1
            if k == len(fields["word"]):
                fits.append(f"{r} {c}")
    if len(fits) != 1:
        raise Refused(f"{'not_unique' if fits else 'impossible'}: the word stands at {len(fits)} places")
    return fits[0]
