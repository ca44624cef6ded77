"""The fewest slides that solve a puzzle of five tiles.

Certificate: a table of all positions, made once from the solved one, against a deepening search with a lower bound
from the text. Difficulty axes: fewest slides, most slides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"least": 2, "most": 7}, {"least": 6, "most": 11}, {"least": 10, "most": 15}, {"least": 15, "most": 21})
CERTIFICATE = ("a table of all positions", "a deepening search from the text")
WORDINGS = Wordings(
    "A frame of 2 rows holds five tiles and a gap (_): {start}. How many slides of one tile into the gap are needed at least to reach {goal}?",
    "Sliding puzzle: turn {start} into {goal} by moving tiles into the gap _. What is the smallest number of moves?",
    "In the tray {start} (two rows, _ is empty) a tile next to the empty place can be pushed into it. Find the least number of pushes that lead to {goal}.",
    "The position {start} of a 2 by 3 sliding puzzle is to become {goal}. How few moves are enough?",
    "Tiles move one place up, down, left or right into the empty place _. From {start}, what is the minimum number of moves to {goal}?",
    answer="Rows are parted by /. Answer with one integer.",
    start=r"[1-5_]{3}/[1-5_]{3}",
    goal=r"[1-5_]{3}/[1-5_]{3}",
)
Spec = tuple[str, str, int]
NEXT = {0: (1, 3), 1: (0, 2, 4), 2: (1, 5), 3: (0, 4), 4: (1, 3, 5), 5: (2, 4)}


@cache
def table() -> dict[str, int]:
    """Slides from every position of six places to 12345_."""
    steps, waiting = {"12345_": 0}, deque(["12345_"])
    while waiting:
        here = waiting.popleft()
        gap = here.index("_")
        for place in NEXT[gap]:
            there = here.replace("_", "x").replace(here[place], "_").replace("x", here[place])
            if there not in steps:
                steps[there] = steps[here] + 1
                waiting.append(there)
    return steps


def sliding_puzzles(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="sliding_puzzles",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, least: int, most: int) -> tuple[str, Spec]:
    """Every number of slides from `least` to `most` is equally likely."""
    slides = rng.randint(least, most)
    start = rng.choice([p for p, n in table().items() if n == slides])
    names = "".join(rng.sample("12345", 5)) + "_"  # the goal's tiles: the same puzzle under other names
    renamed = "".join(names["12345_".index(c)] for c in start)
    return f"{renamed} {names}", (renamed, names, table()[start])


def pose(spec: Spec) -> dict[str, Any]:
    start, goal, steps = spec
    return {
        "prompt": WORDINGS.write(start=f"{start[:3]}/{start[3:]}", goal=f"{goal[:3]}/{goal[3:]}"),
        "answer": str(steps),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    start, goal = (fields[name].replace("/", "") for name in ("start", "goal"))
    if sorted(start) != sorted(goal) or start.count("_") != 1:
        raise Refused("impossible: the two positions do not hold the same tiles")
    at = {tile: divmod(i, 3) for i, tile in enumerate(goal)}

    def far(tiles: str) -> int:
        places = [(divmod(i, 3), at[tile]) for i, tile in enumerate(tiles) if tile != "_"]
        return sum(abs(r - p) + abs(c - q) for (r, c), (p, q) in places)

    def reached(tiles: str, left: int, came: int) -> bool:
        if far(tiles) > left:
            return False
        if tiles == goal:
            return True
        gap = tiles.index("_")
        for place in {0: (1, 3), 1: (0, 2, 4), 2: (1, 5), 3: (0, 4), 4: (1, 3, 5), 5: (2, 4)}[gap]:
            if place != came:
                swapped = list(tiles)
                swapped[gap], swapped[place] = swapped[place], "_"
                if reached("".join(swapped), left - 1, gap):
                    return True
        return False

    for depth in range(22):
        if reached(start, depth, -1):
            return str(depth)
    raise Refused("impossible: the goal cannot be reached")
