"""The least total time when each worker does one job.

Certificate: a table over sets of jobs on the values against all assignments of the text. Difficulty axes: workers,
size of the times.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import NAMES, Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"workers": 3, "size": 9}, {"workers": 4, "size": 15}, {"workers": 5, "size": 30}, {"workers": 6, "size": 60})
CERTIFICATE = ("a table over sets of jobs", "all assignments of the text")
WORDINGS = Wordings(
    "Hours that each worker needs for job 1, job 2 and so on: {times}. Each does one job and each job is done by one worker. What is the least total of hours?",
    "Every one of {n} workers gets one of {n} jobs, all different. Their times for the jobs, in order: {times}. Find the smallest possible sum of times.",
    "Costs of giving job 1, job 2, ... to each person: {times}. Assign one job to each person and one person to each job. What is the lowest total cost?",
    "{times}: these are each worker's minutes for the jobs 1 to {n}. If every worker takes a different job, what is the least total time?",
    "The numbers behind each name say what the jobs 1 to {n} cost when that person does them: {times}. Each person does exactly one job, no job is done twice. What is the minimum total cost?",
    answer="Answer with one integer.",
    times=r"[A-Z][a-z]+(?: \d+)+(?:; [A-Z][a-z]+(?: \d+)+)*",
)
Spec = list[list[int]]


def job_assignments(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="job_assignments",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, workers: int, size: int) -> tuple[str, Spec]:
    spec = [[rng.randint(1, size) for _ in range(workers)] for _ in range(workers)]
    return f"{spec}", spec


def pose(spec: Spec) -> dict[str, Any]:
    best = {0: 0}  # jobs that are taken -> least time
    for row in spec:
        after: dict[int, int] = {}
        for taken, total in best.items():
            for job, time in enumerate(row):
                if not taken >> job & 1:
                    key = taken | 1 << job
                    after[key] = min(after.get(key, total + time), total + time)
        best = after
    (answer,) = best.values()
    times = "; ".join(f"{name} {' '.join(map(str, row))}" for name, row in zip(NAMES, spec, strict=False))
    return {
        "prompt": WORDINGS.write(times=times, n=len(spec)),
        "answer": str(answer),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    rows = [integers(row) for row in WORDINGS.read(question)["times"].split(";")]
    least = None
    for order in permutations(range(len(rows))):
        total = 0
        for row, job in zip(rows, order, strict=True):
            total += row[job]
        least = total if least is None else min(least, total)
    return str(least)
