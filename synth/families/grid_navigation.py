"""Walk through a grid with walls from S to G by the fewest moves; any shortest walk is right.

Certificate: breadth-first search on the values against relaxation of distances over the text until nothing changes.
Difficulty axes: size of the grid, walls."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split
from synth.verify.moves import STEPS

LADDER = ({"size": 3, "walls": 2}, {"size": 5, "walls": 7}, {"size": 7, "walls": 16}, {"size": 9, "walls": 30})
CERTIFICATE = ("breadth-first search on the values", "relaxation of distances over the text")
WORDINGS = Wordings(
    "Go from S to G in the fewest moves. # is a wall.",
    "A walker at S wants to reach G and cannot pass walls (#). What is a shortest walk?",
    "Find a shortest route from S to G on this map, where # blocks the way.",
    "A robot has to get from S to G and never onto a wall #. Which moves take it there soonest?",
    "How does one get from S to G in as few steps as possible, without entering #?",
    answer="Answer with letters such as UURD for up, down, left and right. The map, rows parted by /: {grid}",
    grid="[.#SG]+(?:/[.#SG]+)+",
)


def grid_navigation(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the moves. `levels` are the levels to draw from; env "walk" has it
    played in turns (training/env/walk.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="grid_navigation",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, size: int, walls: int) -> tuple[str, tuple[list[str], str]]:
    while True:
        width, height = rng.randint(size, size + 2), rng.randint(size, size + 2)
        cells = rng.sample([(r, c) for r in range(height) for c in range(width)], walls + 2)
        marks = dict(zip(cells, "SG" + "#" * walls, strict=True))
        rows = ["".join(marks.get((r, c), ".") for c in range(width)) for r in range(height)]
        if (walk := _walk(rows, cells[0])) and len(walk) > 1:
            return "/".join(rows), (rows, walk)


def _walk(rows: Sequence[str], start: tuple[int, int]) -> str:
    waiting, seen = deque([(start, "")]), {start}
    while waiting:
        (r, c), walk = waiting.popleft()
        if rows[r][c] == "G":
            return walk
        for letter, (dr, dc) in STEPS.items():
            place = r + dr, c + dc
            if (
                place not in seen
                and 0 <= place[0] < len(rows)
                and 0 <= place[1] < len(rows[0])
                and rows[place[0]][place[1]] != "#"
            ):
                seen.add(place)
                waiting.append((place, walk + letter))
    return ""


def pose(spec: tuple[list[str], str]) -> dict[str, Any]:
    rows, walk = spec
    return {
        "prompt": WORDINGS.write(grid="/".join(rows)),
        "answer": walk,
        "verifier": "moves",
        "args": {"rows": rows, "limit": len(walk)},
    }


def solve(question: str) -> str:
    rows = WORDINGS.read(question)["grid"].split("/")
    free = {(r, c): x for r, row in enumerate(rows) for c, x in enumerate(row) if x != "#"}
    far = {place: 0 if x == "G" else 1 << 30 for place, x in free.items()}
    changed = True
    while changed:
        changed = False
        for (r, c), distance in far.items():
            near = min((far.get((r + dr, c + dc), 1 << 30) for dr, dc in STEPS.values()), default=1 << 30)
            if near + 1 < distance:
                far[r, c], changed = near + 1, True
    r, c = next(place for place, x in free.items() if x == "S")
    if far[r, c] >= 1 << 30:
        raise Refused("impossible: the goal cannot be reached")
    walk = ""
    while far[r, c]:
        letter, (r, c) = next(
            (m, (r + dr, c + dc)) for m, (dr, dc) in STEPS.items() if far.get((r + dr, c + dc), -1) == far[r, c] - 1
        )
        walk += letter
    return walk
