"""Where a robot stands after turns and steps.

Certificate: complex numbers on the values against a compass followed through the text. Difficulty axes: commands,
steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"commands": 3, "steps": 6},
    {"commands": 6, "steps": 9},
    {"commands": 10, "steps": 15},
    {"commands": 16, "steps": 30},
)
CERTIFICATE = ("complex numbers", "a compass followed through the text")
WORDINGS = Wordings(
    "A robot at (0, 0) faces north, which is up the y-axis. It does this: {commands}. At which point is it then?",
    "Starting from (0, 0) and looking north (towards growing y), follow these commands: {commands}. Where do you end?",
    "A turtle stands at the origin with its head to the north, the direction of growing y. It obeys: {commands}. Find its final coordinates.",
    "From the point (0, 0), heading north along the y-axis, a drone performs {commands}. What are its coordinates at the end?",
    "Commands: {commands}. A cart that begins at (0, 0), facing north (the y-axis points north, the x-axis east), carries them out. Where is it afterwards?",
    answer="Answer with x and y, parted by a space.",
    commands=r"(?:forward|back) \d+(?:, (?:left|right|about)(?:, (?:forward|back) \d+))*",
)
Spec = list[tuple[str, int]]  # a turn and a signed length


def robot_walks(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: two integers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="robot_walks",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, commands: int, steps: int) -> tuple[str, Spec]:
    spec = [
        (
            rng.choice(("left", "right", "right", "left", "about")) if i else "",
            rng.choice((1, 1, 1, -1)) * rng.randint(1, steps),
        )
        for i in range(commands)
    ]
    return f"{spec}", spec


def pose(spec: Spec) -> dict[str, Any]:
    place, heading, told = 0j, 1j, []
    for turn, length in spec:
        heading *= {"left": 1j, "right": -1j, "about": -1, "": 1}[turn]
        place += heading * length
        told += [turn] * bool(turn) + [f"{'forward' if length > 0 else 'back'} {abs(length)}"]
    return {
        "prompt": WORDINGS.write(commands=", ".join(told)),
        "answer": f"{round(place.real)} {round(place.imag)}",
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    x = y = way = 0  # 0 north, 1 east, 2 south, 3 west
    for command in WORDINGS.read(question)["commands"].split(", "):
        word, _, number = command.partition(" ")
        if not number:
            way = (way + {"right": 1, "about": 2, "left": 3}[word]) % 4
            continue
        towards = way if word == "forward" else (way + 2) % 4
        if towards % 2:
            x += int(number) if towards == 1 else -int(number)
        else:
            y += int(number) if towards == 0 else -int(number)
    return f"{x} {y}"
