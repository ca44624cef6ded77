"""The earliest time at which some machines finish all jobs.

Certificate: all loads that can be reached, job by job, on the values against a search over the jobs of the text.
Difficulty axes: machines, jobs, size of the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"machines": 2, "jobs": 4, "size": 9},
    {"machines": 2, "jobs": 6, "size": 20},
    {"machines": 3, "jobs": 6, "size": 30},
    {"machines": 3, "jobs": 8, "size": 60},
)
CERTIFICATE = ("all loads that can be reached", "a search over the jobs of the text")
WORDINGS = Wordings(
    "{m} equal machines share jobs of {times} minutes. No job is split. After how many minutes can all be done at the earliest?",
    "Jobs that take {times} hours are given to {m} workers, each job to one worker, who does one job at a time. What is the least number of hours until the last one is finished?",
    "Find the smallest possible makespan of jobs with the times {times} on {m} identical machines.",
    "Divide the numbers {times} into {m} groups so that the largest sum of a group is as small as possible. What is that sum?",
    "{m} printers must print files of {times} pages, each file on one printer, one page a second. How many seconds pass at least until all files are printed?",
    answer="Answer with one integer.",
    times=r"\d+(?:, \d+)* and \d+",
)
Spec = tuple[int, list[int]]


def machine_schedules(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="machine_schedules",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, machines: int, jobs: int, size: int) -> tuple[str, Spec]:
    times = [rng.randint(1, size) for _ in range(jobs)]
    return f"{machines} {sorted(times)}", (machines, times)


def pose(spec: Spec) -> dict[str, Any]:
    machines, times = spec
    loads = {(0,) * machines}
    for time in times:
        loads = {tuple(sorted((*load[:i], load[i] + time, *load[i + 1 :]))) for load in loads for i in range(machines)}
    return {
        "prompt": WORDINGS.write(m=machines, times=listed([str(t) for t in times])),
        "answer": str(min(map(max, loads))),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    times = sorted(integers(fields["times"]), reverse=True)
    limit = max(times[0], -(-sum(times) // int(fields["m"])))

    def fits(i: int, room: list[int]) -> bool:
        if i == len(times):
            return True
        return any(
            room[k] >= times[i] and fits(i + 1, [*room[:k], room[k] - times[i], *room[k + 1 :]])
            for k in range(len(room))
        )

    while not fits(0, [limit] * int(fields["m"])):
        limit += 1
    return str(limit)
