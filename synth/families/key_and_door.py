"""Walk through a grid to a key, with it through a door, and on to the goal, by the fewest moves; any shortest walk is
right.

Certificate: breadth-first search over (place, key) on the values against relaxation of distances over the text until
nothing changes. Difficulty axes: size of the grid, walls. A wall parts start and goal, so every walk needs the key."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split
from synth.verify.moves import STEPS

LADDER = ({"size": 3, "walls": 0}, {"size": 4, "walls": 3}, {"size": 5, "walls": 6}, {"size": 6, "walls": 10})
CERTIFICATE = ("breadth-first search over places with and without the key", "relaxation of distances over the text")
WORDINGS = Wordings(
    "Go from S to G in the fewest moves. # is a wall, D a door that opens with the key K.",
    "A walker at S wants to reach G. The door D is locked until the walker has been at the key K, and # is a wall. What is a shortest walk?",
    "Fetch the key K, pass the door D with it and reach G from S in as few moves as possible. # cannot be entered.",
    "Find a shortest route from S to G on this map, where walls (#) block the way and the door (D) needs the key (K).",
    "A robot has to get from S to G, by the key K and through the door D, and never onto a wall #. Which moves take it there soonest?",
    answer="Answer with letters such as UURD for up, down, left and right. The map, rows parted by /: {grid}",
    grid="[.#SGKD]+(?:/[.#SGKD]+)+",
)


def key_and_door(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the moves. `levels` are the levels to draw from; env "walk" has it
    played in turns (training/env/walk.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="key_and_door",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, size: int, walls: int) -> tuple[str, tuple[list[str], str]]:
    """Two rooms of `size` columns with a wall between them that has one door."""
    while True:
        height = rng.randint(size, size + 1)
        left = [(r, c) for r in range(height) for c in range(size)]
        right = [(r, c + size + 1) for r, c in left]
        marks = {(r, size): "#" for r in range(height)} | {(rng.randrange(height), size): "D"}
        marks |= dict(zip(rng.sample(left, 2), "SK", strict=True)) | {rng.choice(right): "G"}
        for place in rng.sample(left + right, walls):
            marks.setdefault(place, "#")
        rows = ["".join(marks.get((r, c), ".") for c in range(2 * size + 1)) for r in range(height)]
        start = next(place for place, x in marks.items() if x == "S")
        if walk := _walk(rows, start):
            return "/".join(rows), (rows, walk)


def _walk(rows: Sequence[str], start: tuple[int, int]) -> str:
    waiting, seen = deque([(start, False, "")]), {(start, False)}
    while waiting:
        (r, c), key, walk = waiting.popleft()
        if rows[r][c] == "G":
            return walk
        for letter, (dr, dc) in STEPS.items():
            place = r + dr, c + dc
            if not (0 <= place[0] < len(rows) and 0 <= place[1] < len(rows[0])):
                continue
            x = rows[place[0]][place[1]]
            then = key or x == "K"
            if x != "#" and (x != "D" or key) and (place, then) not in seen:
                seen.add((place, then))
                waiting.append((place, then, walk + letter))
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
    cells = {(r, c): x for r, row in enumerate(rows) for c, x in enumerate(row) if x != "#"}
    far = {
        (place, key): 0 if x == "G" else 1 << 30
        for place, x in cells.items()
        for key in (False, True)
        if x != "D" or key
    }

    def after(place: tuple[int, int], key: bool) -> list[tuple[str, tuple]]:
        near = [(m, (place[0] + dr, place[1] + dc)) for m, (dr, dc) in STEPS.items()]
        return [(m, (p, key or cells[p] == "K")) for m, p in near if p in cells]

    changed = True
    while changed:
        changed = False
        for (place, key), distance in far.items():
            best = min((far.get(state, 1 << 30) for _, state in after(place, key)), default=1 << 30)
            if best + 1 < distance:
                far[place, key], changed = best + 1, True
    state = next((place, False) for place, x in cells.items() if x == "S")
    if far[state] >= 1 << 30:
        raise Refused("impossible: the goal cannot be reached")
    walk = ""
    while far[state]:
        letter, state = next((m, s) for m, s in after(*state) if far.get(s, -1) == far[state] - 1)
        walk += letter
    return walk
