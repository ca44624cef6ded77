"""Dates of the Gregorian calendar: the weekday of a date, days between two dates, the date some days later.

Certificate: the standard library's dates against a day count of our own (years, leap days, days of the months), which
is inverted by counting days up. Difficulty axes: span in years, span in days.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, read_kind
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"years": 2, "days": 30, "kinds": ("between", "later")},
    {"years": 100, "days": 400, "kinds": ("weekday", "between", "later")},
    {"years": 400, "days": 3000, "kinds": ("weekday", "between", "later")},
    {"years": 400, "days": 40_000, "kinds": ("weekday", "between", "later")},
)
CERTIFICATE = ("datetime of the standard library", "a day count of our own over the text")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_DATE = r"\d{4}-\d\d-\d\d"
WORDINGS = {
    "weekday": Wordings(
        "Which day of the week is {first}?",
        "On which day of the week does {first} fall?",
        "What weekday is {first}?",
        "Name the weekday of {first}.",
        "A page of a diary is for {first}. Which day of the week stands on it?",
        answer="Dates are year-month-day. Answer with a name such as Friday.",
        first=_DATE,
    ),
    "between": Wordings(
        "How many days is it from {first} to {last}?",
        "How many days after {first} is {last}?",
        "By how many days do {first} and {last} differ?",
        "Count the days after {first} up to and including {last}.",
        "A book is lent on {first} and comes back on {last}. How many days later is that?",
        answer="Dates are year-month-day. Answer with one integer.",
        first=_DATE,
        last=_DATE,
    ),
    "later": Wordings(
        "Which date is {span} days after {first}?",
        "Add {span} days to {first}. What date is that?",
        "Today is {first}. Which date will it be in {span} days?",
        "What date comes {span} days after {first}?",
        "A comet is seen on {first} and again {span} days later. On which date is it seen again?",
        answer="Dates are year-month-day. Answer with a date in the same form.",
        first=_DATE,
        span=r"\d+",
    ),
}
Spec = tuple[str, date, int]


def calendar(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a weekday, a number or a date as YYYY-MM-DD. `levels` are the rungs of the ladder to
    draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="calendar",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, years: int, days: int, kinds: Sequence[str]) -> tuple[str, Spec]:
    kind = rng.choice(kinds)
    start = date(2000 - years // 2, 1, 1) + timedelta(rng.randrange(years * 365))
    span = rng.randint(2, days)
    return f"{kind} {start} {span if kind != 'weekday' else ''}", (kind, start, span)


def pose(spec: Spec) -> dict[str, Any]:
    kind, start, span = spec
    end = start + timedelta(span)
    if kind == "weekday":
        return {
            "prompt": WORDINGS[kind].write(first=start),
            "answer": WEEKDAYS[start.weekday()],
            "verifier": "exact",
        }
    if kind == "between":
        return {
            "prompt": WORDINGS[kind].write(first=start, last=end),
            "answer": str(span),
            "verifier": "number",
            "args": {"kind": "integer"},
        }
    return {"prompt": WORDINGS[kind].write(first=start, span=span), "answer": str(end), "verifier": "exact"}


def leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def day_number(text: str) -> int:
    """Days since 0001-01-01, which is 0 and a Monday."""
    year, month, day = map(int, text.split("-"))
    before = year - 1
    months = sum(MONTHS[: month - 1]) + (month > 2 and leap(year))
    return 365 * before + before // 4 - before // 100 + before // 400 + months + day - 1


def solve(question: str) -> str:
    kind, read = read_kind(WORDINGS, question)
    start = read["first"]
    if kind == "weekday":
        return WEEKDAYS[day_number(start) % 7]
    if kind == "between":
        return str(day_number(read["last"]) - day_number(start))
    year, left = int(start[:4]), day_number(start) - day_number(f"{start[:4]}-1-1") + int(read["span"])
    while left >= 365 + leap(year):
        left, year = left - 365 - leap(year), year + 1
    for month, days in enumerate(MONTHS, 1):
        days += month == 2 and leap(year)
        if left < days:
            break
        left -= days
    return f"{year:04}-{month:02}-{left + 1:02}"
