"""The local time of another city, or of an arrival after flights.

Certificate: times with zones of the standard library against minutes counted round the clock from the text.
Difficulty axes: flights, zones of half an hour.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"flights": 0, "halves": False},
    {"flights": 0, "halves": True},
    {"flights": 1, "halves": True},
    {"flights": 3, "halves": True},
)
CERTIFICATE = ("times with zones", "minutes round the clock")
WORDINGS = Wordings(
    "It is {time} in {a}, where clocks show UTC{x}. {flights}What time is it then in {b} (UTC{y})?",
    "A clock in {a} (UTC{x}) shows {time}. {flights}What does a clock in {b}, at UTC{y}, show at that moment?",
    "{a} is at UTC{x} and {b} at UTC{y}. At {time} in {a} someone looks at the clock. {flights}Which local time is it then in {b}?",
    "In {a}, which keeps UTC{x}, it is {time}. {flights}Find the local time in {b}, which keeps UTC{y}, at that moment.",
    "Local time in {a} is {time} (UTC{x}). {flights}What is the local time in {b} (UTC{y}) then?",
    answer="Answer with the time as HH:MM on the 24-hour clock.",
    time=r"\d\d:\d\d",
    a="[A-Z][a-z]+",
    b="[A-Z][a-z]+",
    x=r"[-+]\d\d:\d\d",
    y=r"[-+]\d\d:\d\d",
    flights=r"(?:Then \d+ h \d+ min(?:(?:, | and )\d+ h \d+ min)* pass\. )?",
)
CITIES = ("Alba", "Borno", "Carda", "Delos", "Eburn", "Farol", "Gavia", "Hexam", "Istra", "Jolna", "Karth", "Lumos")
Spec = tuple[int, str, str, int, int, list[int]]


def time_zones(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a time of day. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="time_zones",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, flights: int, halves: bool) -> tuple[str, Spec]:
    a, b = rng.sample(CITIES, 2)
    zones = [60 * h for h in range(-11, 13)] + (
        [60 * h + 30 for h in range(-9, 11)] + [345, 525, 765] if halves else []
    )
    x, y = rng.sample(zones, 2)
    start, parts = rng.randrange(1440), [rng.randint(45, 900) for _ in range(flights)]
    return f"{start} {x} {y} {sorted(parts)}", (start, a, b, x, y, parts)


def pose(spec: Spec) -> dict[str, Any]:
    start, a, b, x, y, parts = spec
    here = datetime(2024, 3, 10, start // 60, start % 60, tzinfo=timezone(timedelta(minutes=x)))
    there = (here + timedelta(minutes=sum(parts))).astimezone(timezone(timedelta(minutes=y)))
    zone = lambda m: f"{'-' if m < 0 else '+'}{abs(m) // 60:02}:{abs(m) % 60:02}"  # noqa: E731
    told = listed([f"{m // 60} h {m % 60} min" for m in parts]) if parts else ""
    return {
        "prompt": WORDINGS.write(
            time=f"{start // 60:02}:{start % 60:02}",
            a=a,
            b=b,
            x=zone(x),
            y=zone(y),
            flights=f"Then {told} pass. " if told else "",
        ),
        "answer": f"{there.hour:02}:{there.minute:02}",
        "verifier": "exact",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    hand = int(fields["time"][:2]) * 60 + int(fields["time"][3:])
    for zone, back in ((fields["x"], -1), (fields["y"], 1)):
        away = int(zone[1:3]) * 60 + int(zone[4:])
        hand += away * back * (-1 if zone[0] == "-" else 1)
    for hours, minutes in re.findall(r"(\d+) h (\d+) min", fields["flights"]):
        for _ in range(int(hours)):
            hand += 60
        hand += int(minutes)
    while hand < 0:
        hand += 1440
    while hand >= 1440:
        hand -= 1440
    return f"{hand // 60:02}:{hand % 60:02}"
