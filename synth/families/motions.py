"""How far something goes that speeds up, keeps its speed and brakes.

Certificate: the formula for each part on the values against the area under the speed, second by second, from the
text. Difficulty axes: parts, size of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"parts": 1, "size": 6}, {"parts": 2, "size": 8}, {"parts": 3, "size": 10}, {"parts": 5, "size": 12})
CERTIFICATE = ("the formula for each part", "the area under the speed, second by second")
WORDINGS = Wordings(
    "A car drives at {u} m/s. {parts}. How many metres does it cover in that time?",
    "At first a train moves at {u} m/s. {parts}. Find the distance in metres that it covers meanwhile.",
    "The initial speed of a cart on a straight track is {u} m/s. {parts}. What distance, in metres, does it travel during all this?",
    "A boat passes a buoy at {u} m/s and goes straight on. {parts}. How far from the buoy is it after that, in metres?",
    "Speed at the start: {u} m/s. {parts}. Compute the distance covered in these seconds, in metres.",
    answer="Answer with an exact number such as 40 or 85/2.",
    parts=r"(?:It|Then it) [a-z\d/^ ]+(?:\. Then it [a-z\d/^ ]+)*",
)
Spec = tuple[int, list[tuple[int, int]]]  # acceleration and seconds of each part


def motions(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="motions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, parts: int, size: int) -> tuple[str, Spec]:
    while True:
        u, spec, speed = rng.randint(0, 2 * size), [], 0
        speed = u
        for _ in range(parts):
            a, t = rng.choice((0, 1, 1, -1)) * rng.randint(1, 5), rng.randint(2, size)
            spec.append((a, t))
            speed += a * t
            if speed < 0:
                break
        if speed >= 0 and any(a for a, _ in spec):
            return f"{u} {spec}", (u, spec)


def pose(spec: Spec) -> dict[str, Any]:
    u, parts = spec
    speed, way, told = u, Fraction(0), []
    for a, t in parts:
        way += speed * t + Fraction(a * t * t, 2)
        speed += a * t
        what = (
            f"speeds up by {a} m/s every second"
            if a > 0
            else f"slows down by {-a} m/s every second"
            if a
            else "keeps its speed"
        )
        told.append(f"{'Then it' if told else 'It'} {what} for {t} seconds")
    return {"prompt": WORDINGS.write(u=u, parts=". ".join(told)), "answer": str(way), "verifier": "number"}


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    speed, twice = int(fields["u"]), 0
    for part in fields["parts"].split(". "):
        *change, seconds = integers(part)
        change = [0] if "keeps" in part else [-change[0]] if "slows" in part else change
        for _ in range(seconds):
            twice += 2 * speed + change[0]
            speed += change[0]
    return str(Fraction(twice, 2))
