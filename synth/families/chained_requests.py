"""Requests that build on each other: each adds, subtracts or multiplies, and takes results of earlier ones.

A world for conversations in which a tool is called turn after turn (PARL-MT, arXiv 2509.23206). Certificate: results
computed in the order of the requests against a recursion from the last one over the text. Difficulty axis: requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"requests": 2}, {"requests": 3}, {"requests": 4}, {"requests": 6})
CERTIFICATE = ("results in the order of the requests", "recursion from the last request over the text")
OPERATIONS = {"add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b}
_TEXT = re.compile(r"((?:Request \d+: .+?\. )+)What is the last result\?")
_REQUEST = re.compile(r"Request (\d+): (add|subtract|multiply) (\d+|result \d+) and (\d+|result \d+)\.")


def chained_requests(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the last result. `levels` are the levels to draw from; env "progress"
    has it played in turns (training/env/progress.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="chained_requests",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, requests: int) -> tuple[str, list[tuple]]:
    while True:
        plan: list[tuple] = []
        for i in range(requests):
            one = ("result", i) if i else rng.randint(2, 20)
            other = ("result", rng.randint(1, i)) if i > 1 and rng.random() < 0.5 else rng.randint(2, 9)
            plan.append((rng.choice(sorted(OPERATIONS)), one, other))
        values = results(plan)
        if all(abs(v) < 10_000 for v in values):
            return str(plan), plan


def results(plan: Sequence[tuple]) -> list[int]:
    values: list[int] = []
    for name, *operands in plan:
        values.append(OPERATIONS[name](*(values[x[1] - 1] if isinstance(x, tuple) else x for x in operands)))
    return values


def pose(plan: list[tuple]) -> dict[str, Any]:
    reference = lambda x: f"result {x[1]}" if isinstance(x, tuple) else str(x)  # noqa: E731
    text = " ".join(f"Request {i}: {name} {reference(a)} and {reference(b)}." for i, (name, a, b) in enumerate(plan, 1))
    values = results(plan)
    return {
        "prompt": f"{text} What is the last result?",
        "answer": str(values[-1]),
        "verifier": "number",
        "working": ", ".join(map(str, values)),
    }


def solve(question: str) -> str:
    requests = {int(n): (name, a, b) for n, name, a, b in _REQUEST.findall(parsed(_TEXT, question)[1])}

    def value(text: str) -> int:
        if not text.startswith("result "):
            return int(text)
        name, a, b = requests[int(text.removeprefix("result "))]
        x, y = value(a), value(b)
        return x + y if name == "add" else x - y if name == "subtract" else x * y

    if not requests:
        raise Refused("roundtrip: nothing is requested")
    return str(value(f"result {max(requests)}"))
