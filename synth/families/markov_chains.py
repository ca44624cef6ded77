"""The probability of a state after some steps of a chain of two or three states.

Certificate: the distribution step by step on the values against every path followed from the text. Difficulty axes: states, steps.
"""

from __future__ import annotations

from fractions import Fraction
import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"states": 2, "steps": 2}, {"states": 2, "steps": 3}, {"states": 3, "steps": 3}, {"states": 3, "steps": 5})
CERTIFICATE = ("the distribution step by step", "every path followed from the text")
WORDINGS = Wordings(
    "The weather changes from day to day: {rules}. Today it is {start}. What is the probability that it is {end} in {k} days?",
    "From one day to the next, {rules}. If it is {start} now, how likely is it to be {end} after {k} days?",
    "In a valley {rules}. On the first day it is {start}. Find the probability of {end} weather {k} days later.",
    "A game has the weather of an island: {rules}. It begins {start}. With what probability is it {end} after {k} more days?",
    "It is {start} today. From day to day, {rules}. Compute the probability that it is {end} {k} days from now.",
    answer="Numbers behind 'with' are probabilities. Answer with a fraction such as 3/8.",
    rules=r"[a-z/\d,; ]+",
    start=r"sunny|rainy|windy",
    end=r"sunny|rainy|windy",
)
Rows = dict[str, dict[str, Fraction]]
Spec = tuple[Rows, str, str, int]
STATES = ("sunny", "rainy", "windy")


def markov_chains(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a fraction. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="markov_chains",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, states: int, steps: int) -> tuple[str, Spec]:
    names, below = STATES[:states], rng.choice((3, 4, 5, 6, 8))
    rows: Rows = {}
    for name in names:
        cuts = sorted(rng.sample(range(1, below), states - 1)) if below >= states else [1] * (states - 1)
        parts = [b - a for a, b in zip([0, *cuts], [*cuts, below], strict=True)]
        rows[name] = {n: Fraction(p, below) for n, p in zip(names, parts, strict=True)}
    spec = rows, rng.choice(names), rng.choice(names), steps
    return f"{told(rows)} {spec[1:]}", spec


def told(rows: Rows) -> str:
    return "; ".join(
        f"after {name} comes " + ", ".join(f"{n} with {p}" for n, p in row.items()) for name, row in rows.items()
    )


def pose(spec: Spec) -> dict[str, Any]:
    rows, start, end, steps = spec
    now = {name: Fraction(name == start) for name in rows}
    for _ in range(steps):
        now = {name: sum((now[x] * rows[x][name] for x in rows), Fraction(0)) for name in rows}
    return {
        "prompt": WORDINGS.write(rules=told(rows), start=start, end=end, k=steps),
        "answer": str(now[end]),
        "verifier": "number",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    rows = {}
    for rule in read["rules"].split("; "):
        name = re.match(r"after (\w+) ", rule)
        rows[name[1] if name else ""] = re.findall(r"(\w+) with (\d+/\d+)", rule)

    def chance(at: str, left: int) -> Fraction:
        if left == 0:
            return Fraction(at == read["end"])
        return sum((Fraction(p) * chance(to, left - 1) for to, p in rows[at]), Fraction(0))

    return str(chance(read["start"], int(read["k"])))
