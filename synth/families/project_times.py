"""The shortest time for a project whose tasks wait for others.

Certificate: earliest ends in the order of the drawn tasks against the longest chain of the text. Difficulty axes:
tasks, tasks waited for, size of the times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"tasks": 4, "waits": 1, "size": 9},
    {"tasks": 6, "waits": 2, "size": 12},
    {"tasks": 8, "waits": 2, "size": 20},
    {"tasks": 11, "waits": 3, "size": 30},
)
CERTIFICATE = ("earliest ends", "the longest chain of the text")
WORDINGS = Wordings(
    "Tasks and their days: {tasks}. Any number of tasks can run at once. In how many days can all be done?",
    "A project has the tasks {tasks}; the numbers are hours. Tasks that need not wait for each other may run side by side. What is the shortest time for the whole, in hours?",
    "How long does a project take at least if its tasks, with their times, are {tasks}, and there are enough people for all tasks that can run at once?",
    "{tasks}. Each number is a duration in weeks, and a task starts only when those it comes after are finished. What is the least number of weeks for everything?",
    "Find the length of the critical path: {tasks}.",
    answer="Answer with one integer.",
    tasks=r"[A-Z] \d+(?: after [A-Z](?:(?:, | and )[A-Z])*)?(?:; [A-Z] \d+(?: after [A-Z](?:(?:, | and )[A-Z])*)?)*",
)
Spec = list[tuple[str, int, list[str]]]


def project_times(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="project_times",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, tasks: int, waits: int, size: int) -> tuple[str, Spec]:
    names = rng.sample("ABCDEFGHJKLMNPQRSTUVWXYZ", tasks)
    spec = []
    for i, name in enumerate(names):
        spec.append((name, rng.randint(1, size), sorted(rng.sample(names[:i], min(i, rng.randint(min(i, 1), waits))))))
    return f"{sorted(spec)}", spec


def pose(spec: Spec) -> dict[str, Any]:
    end: dict[str, int] = {}
    for name, time, before in spec:
        end[name] = time + max((end[b] for b in before), default=0)
    told = [f"{name} {time}{f' after {listed(before)}' if before else ''}" for name, time, before in sorted(spec)]
    return {
        "prompt": WORDINGS.write(tasks="; ".join(told)),
        "answer": str(max(end.values())),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": ", ".join(f"{name} ends at {t}" for name, t in end.items()),
    }


def solve(question: str) -> str:
    rows = re.findall(r"([A-Z]) (\d+)(?: after ([A-Z, and]+))?", WORDINGS.read(question)["tasks"])
    waits = {name: (int(time), re.findall("[A-Z]", before)) for name, time, before in rows}

    def chain(name: str) -> int:
        time, before = waits[name]
        longest = 0
        for other in before:
            longest = max(longest, chain(other))
        return time + longest

    return str(max(map(chain, waits)))
