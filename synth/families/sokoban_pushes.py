"""The fewest pushes that bring a box to its place.

Certificate: pushes forwards from the values against pulls backwards from the goal of the text. Difficulty axes: size
of the room, walls, fewest pushes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"size": 4, "walls": 2, "least": 1},
    {"size": 5, "walls": 5, "least": 3},
    {"size": 6, "walls": 9, "least": 4},
    {"size": 8, "walls": 18, "least": 7},
)
CERTIFICATE = ("pushes forwards", "pulls backwards from the goal of the text")
WORDINGS = Wordings(
    "Sokoban: {room}. You (P) push the box (B) to G. How many pushes are needed at least?",
    "In the warehouse {room} the worker P must push the box B onto G. What is the fewest number of pushes?",
    "A robot P can push, never pull, the crate B. Find the least number of pushes that bring it to G: {room}.",
    "Room: {room}. P walks freely on the floor and pushes B by walking against it. What is the smallest number of pushes until B stands on G?",
    "The map {room} shows a pusher P, a box B and its target G. Count the pushes of a solution with as few pushes as possible.",
    answer="Rows are parted by /, # is wall, o is floor; steps without a push do not count. No step is diagonal. Answer with one integer.",
    room="[#oPBG]+(?:/[#oPBG]+)+",
)
SPREAD = 5  # different numbers of pushes in one room
Place = tuple[int, int]
Spec = tuple[list[str], int]
STEPS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def sokoban_pushes(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="sokoban_pushes",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, walls: int, least: int) -> tuple[str, Spec]:
    """Every number of pushes that a room allows, from `least` on, is equally likely; there are at least SPREAD of them."""
    while True:
        places = [(r, c) for r in range(size) for c in range(size)]
        rng.shuffle(places)
        goal, floor = places[walls], set(places[walls:])
        far: dict[int, list[tuple[Place, Place]]] = {}
        for state, n in pulls(floor, goal).items():
            far.setdefault(n, []).append(state)
        if max(far, default=0) >= least + SPREAD - 1:
            here, box = rng.choice(sorted(far[rng.randint(least, max(far))]))
            signs = {here: "P", box: "B", goal: "G"}
            rows = [
                "".join(signs.get((r, c), "o") if (r, c) in floor else "#" for c in range(size)) for r in range(size)
            ]
            return f"{rows}", (rows, fewest(rows))


def pulls(floor: Set[Place], goal: Place) -> dict[tuple[Place, Place], int]:
    """Where the worker and the box may start, none of them on the goal, with the number of pushes from there; the answer
    is counted anew, by `fewest`."""
    best = {(p, goal): 0 for p in floor - {goal}}
    waiting = deque(best)
    while waiting:
        here, box = waiting.popleft()
        n = best[here, box]
        for r, c in STEPS:
            back = (here[0] - r, here[1] - c)
            if back not in floor or back == box:
                continue
            pulled = (here[0] + r, here[1] + c) == box
            for state, cost in (((back, box), n), *((((back, here), n + 1),) if pulled else ())):
                if cost < best.get(state, 1 << 30):
                    best[state] = cost
                    (waiting.append if cost > n else waiting.appendleft)(state)
    return {state: n for state, n in best.items() if goal not in state}


def fewest(rows: Sequence[str]) -> int:
    """The least number of pushes, walks being free; -1 where the box cannot get there."""
    at = {x: (r, c) for r, row in enumerate(rows) for c, x in enumerate(row)}
    floor = {(r, c) for r, row in enumerate(rows) for c, x in enumerate(row) if x != "#"}
    best, waiting = {(at["P"], at["B"]): 0}, deque([(at["P"], at["B"])])
    while waiting:
        here, box = waiting.popleft()
        n = best[here, box]
        if box == at["G"]:
            return n
        for r, c in STEPS:
            there = (here[0] + r, here[1] + c)
            moved = (there[0] + r, there[1] + c) if there == box else box
            if there in floor and moved in floor and n + (moved != box) < best.get((there, moved), 1 << 30):
                best[there, moved] = n + (moved != box)
                (waiting.append if moved != box else waiting.appendleft)((there, moved))
    return -1


def pose(spec: Spec) -> dict[str, Any]:
    rows, pushes = spec
    return {
        "prompt": WORDINGS.write(room="/".join(rows)),
        "answer": str(pushes),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    rows = WORDINGS.read(question)["room"].split("/")
    grid = {(r, c): x for r, row in enumerate(rows) for c, x in enumerate(row) if x != "#"}
    start, box, goal = (next(p for p, x in grid.items() if x == sign) for sign in "PBG")
    pushes = pulls(grid.keys(), goal).get((start, box))
    if pushes is None:
        raise Refused("impossible: the box cannot be brought to the goal")
    return str(pushes)
