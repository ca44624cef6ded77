"""Times of day: the time some minutes before or after, and the minutes from one time to the next occurrence of another.

Certificate: arithmetic modulo 1440 on the drawn minutes against a hand of a clock that is turned hour by hour, minute
by minute, from the text. Difficulty axes: span in minutes, 24-hour or 12-hour clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item, parsed
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"span": 59, "clock": 24, "steps": 1},
    {"span": 600, "clock": 24, "steps": 1},
    {"span": 3000, "clock": 24, "steps": 2},
    {"span": 3000, "clock": 12, "steps": 3},
)
CERTIFICATE = ("minutes modulo 1440", "turning the hands of the clock in the text")
WORDINGS = Wordings(
    "It is {time}. What time is it {steps}?",
    "A clock shows {time}. What does it show {steps}?",
    "If the time is {time} now, which time is it {steps}?",
    "Give the time {steps}, counted from {time}.",
    "Someone looks at a watch at {time}. What is the time {steps}?",
    answer="Answer with a time written like {time}.",
    time=r"\d+:\d\d(?: [ap]m)?",
    steps=r"\d+ minutes (?:earlier|later)(?:, then \d+ minutes (?:earlier|later))*",
)
_TIME = re.compile(r"(\d+):(\d\d)( [ap]m)?")
_STEP = re.compile(r"(\d+) minutes (earlier|later)")
Spec = tuple[int, tuple[int, ...], int]


def clock_times(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a time as the question writes times. `levels` are the rungs of the ladder to draw
    from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="clock_times",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, span: int, clock: int, steps: int) -> tuple[str, Spec]:
    start = rng.randrange(1440)
    moves = tuple(rng.choice((1, -1)) * rng.randint(1, span) for _ in range(steps))
    return f"{start} {moves} {clock}", (start, moves, clock)


def write(minutes: int, clock: int) -> str:
    hour, minute = divmod(minutes % 1440, 60)
    return f"{hour:02}:{minute:02}" if clock == 24 else f"{(hour - 1) % 12 + 1}:{minute:02} {'ap'[hour >= 12]}m"


def pose(spec: Spec) -> dict[str, Any]:
    start, moves, clock = spec
    steps = ", then ".join(f"{abs(m)} minutes {'later' if m > 0 else 'earlier'}" for m in moves)
    on_the_way = [write(start + sum(moves[: i + 1]), clock) for i in range(len(moves) - 1)]
    return {
        "prompt": WORDINGS.write(time=write(start, clock), steps=steps),
        "answer": write(start + sum(moves), clock),
        "verifier": "exact",
        "working": ", ".join(on_the_way),
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    hour_text, minute_text, half = parsed(_TIME, read["time"]).groups()
    hour, minute = int(hour_text), int(minute_text)
    if half:
        hour = hour % 12 + 12 * (half == " pm")
    for amount, direction in _STEP.findall(read["steps"]):
        turn, left = (1 if direction == "later" else -1), int(amount)
        while left >= 60:
            hour, left = (hour + turn) % 24, left - 60
        for _ in range(left):
            minute += turn
            if minute in (-1, 60):
                minute, hour = minute % 60, (hour + turn) % 24
    if not half:
        return f"{hour:02}:{minute:02}"
    twelve = hour if 1 <= hour <= 12 else 12 if hour == 0 else hour - 12
    return f"{twelve}:{minute:02} {'pm' if hour >= 12 else 'am'}"
