"""What a stack or a queue holds after some operations.

Certificate: operations on a list of the values against pairs of operations cancelled in the text. Difficulty axes:
operations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = ({"operations": 6}, {"operations": 9}, {"operations": 14}, {"operations": 22})
CERTIFICATE = ("operations on a list", "pairs of operations cancelled in the text")
WORDINGS = Wordings(
    "An empty {kind} gets these operations: {steps}. What does it hold at the end?",
    "Starting with an empty {kind}, do this: {steps}. List what is left.",
    "The operations {steps} are carried out on a {kind} that is empty at first. What are its contents then?",
    "Operations on a new, empty {kind}: {steps}. Which numbers are in it afterwards?",
    "A program uses a {kind}, empty at the start, like this: {steps}. Give its final contents.",
    answer="Answer with the numbers in the order in which they were put in, parted by spaces.",
    kind=r"(?:stack \(what came last is taken first\)|queue \(what came first is taken first\))",
    steps=r"(?:put \d+|take)(?:, (?:put \d+|take))*",
)
KINDS = {"stack": "stack (what came last is taken first)", "queue": "queue (what came first is taken first)"}
Spec = tuple[str, list[int]]  # 0 takes


def stacks_and_queues(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: whole numbers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="stacks_and_queues",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, operations: int) -> tuple[str, Spec]:
    while True:
        kind, spec = rng.choice(sorted(KINDS)), []
        for _ in range(operations):
            held = sum(1 if x else -1 for x in spec)
            spec.append(0 if held and rng.random() < 0.42 else rng.randint(1, 99))
        if sum(1 if x else -1 for x in spec) > 1 and 0 in spec:
            return f"{kind} {spec}", (kind, spec)


def pose(spec: Spec) -> dict[str, Any]:
    kind, steps = spec
    held: list[int] = []
    for x in steps:
        if x:
            held.append(x)
        else:
            held.pop(-1 if kind == "stack" else 0)
    told = ", ".join(f"put {x}" if x else "take" for x in steps)
    return {
        "prompt": WORDINGS.write(kind=KINDS[kind], steps=told),
        "answer": " ".join(map(str, held)),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    steps = fields["steps"]
    if fields["kind"].startswith("queue"):  # what is taken are the first numbers that were put
        return " ".join(map(str, integers(steps)[steps.count("take") :]))
    steps += ", "
    while "take" in steps:
        steps = re.sub(r"put \d+, take, ", "", steps, count=1)
    return " ".join(map(str, integers(steps)))
