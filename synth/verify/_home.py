"""A moment at home: what a person likes to hear, when they want quiet, and what an assistant's suggestion is rated; shared by the family
home_moments and the environment home."""

from __future__ import annotations

import re
from dataclasses import dataclass

KINDS = ("news", "music", "meals", "walks", "chores", "friends")
EVENTS = ("cooking", "reading", "calling", "resting", "eating", "working")
SILENCE = "silence"
TEXT = re.compile(
    r"(\w+) is at home\. Likes: ([a-z0-9, ]+)\. Quiet: from (\d+) to (\d+), and when (\w+)\. Between suggestions: (\d+) steps\. "
    r"Before: ([a-z0-9; ]*)\. Now: at (\d+), (\w+), (\d+) steps after the last suggestion\. Which suggestion is best, or silence\?"
)


@dataclass(frozen=True)
class Moment:
    """likes: kind -> 1 to 5; quiet: the hours from which and to which nobody should speak; busy: an event that wants quiet too; gap:
    steps between two suggestions; log: (hour, event, kind, rating) of earlier ones; since: steps since the last."""

    name: str
    likes: dict[str, int]
    quiet: tuple[int, int]
    busy: str
    gap: int
    log: tuple[tuple[int, str, str, int], ...]
    hour: int
    event: str
    since: int


def read(question: str) -> Moment | None:
    """The moment that a question tells; None where it tells none."""
    match = TEXT.fullmatch(question)
    if match is None:
        return None
    likes = {k: int(n) for k, n in (x.split() for x in match[2].split(", "))}
    log = [x.split() for x in match[7].split("; ") if x]
    return Moment(
        match[1],
        likes,
        (int(match[3]), int(match[4])),
        match[5],
        int(match[6]),
        tuple((int(h), e, k, int(r)) for h, e, k, r in log),
        int(match[8]),
        match[9],
        int(match[10]),
    )


def told(m: Moment) -> str:
    """The question of a moment, which `read` reads."""
    likes = ", ".join(f"{k} {n}" for k, n in m.likes.items())
    log = "; ".join(f"{h} {e} {k} {r}" for h, e, k, r in m.log)
    return (
        f"{m.name} is at home. Likes: {likes}. Quiet: from {m.quiet[0]} to {m.quiet[1]}, and when {m.busy}. Between suggestions: {m.gap} steps. "
        f"Before: {log}. Now: at {m.hour}, {m.event}, {m.since} steps after the last suggestion. Which suggestion is best, or silence?"
    )


def wants_quiet(m: Moment) -> bool:
    first, last = m.quiet
    asleep = first <= m.hour < last if first <= last else m.hour >= first or m.hour < last
    return asleep or m.event == m.busy


def rating(m: Moment, action: str) -> dict[str, float]:
    """content, timing and frequency, each from 1 to 5, and the rating, their mean. Who speaks into the quiet is rated 1. Silence is rated 5
    where quiet is wanted, 4 where the last suggestion is too near, else 3;
    its content is 1, as is that of an unknown kind."""
    quiet, near = wants_quiet(m), max(0, m.gap - m.since)
    if action == SILENCE:
        value = 5.0 if quiet else 4.0 if near else 3.0
        return {"content": 1.0, "timing": value, "frequency": value, "rating": value}
    content, timing, frequency = float(m.likes.get(action, 1)), 1.0 if quiet else 5.0, max(1.0, 5.0 - 2.0 * near)
    mean = (content + timing + frequency) / 3
    return {"content": content, "timing": timing, "frequency": frequency, "rating": 1.0 if quiet else mean}
