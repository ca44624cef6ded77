"""How likely a cause is after some independent tests.

Certificate: odds on the values against counts in a population from the text. Difficulty axes: number of tests.
"""

from __future__ import annotations

from fractions import Fraction
import re
from collections.abc import Sequence
from math import prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"tests": 1}, {"tests": 2}, {"tests": 3}, {"tests": 4})
CERTIFICATE = ("odds", "counts in a population from the text")
WORDINGS = Wordings(
    "One machine in {n} is faulty. {tests}, each test independent of the others. What is the probability that the machine is faulty?",
    "Of the machines of a factory 1 in {n} is faulty. {tests}; given the state of a machine its tests are independent. How likely is this machine to be faulty?",
    "A machine is faulty with probability 1/{n}. {tests}, where the tests do not depend on each other. Find the probability of a fault.",
    "Before any test a machine of {n} is the faulty one. {tests}, the tests being independent of each other. Compute the probability that it is faulty.",
    "A fault has the prior probability 1/{n}. {tests}, independently. With what probability is there a fault?",
    answer="Answer with a fraction such as 3/8, or an integer.",
    tests=r"Test \d+[A-Za-z%,;:. \d]+?",
)
Spec = tuple[int, list[tuple[int, int, bool]]]


def bayes_updates(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a fraction. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="bayes_updates",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, tests: int) -> tuple[str, Spec]:
    some = [(5 * rng.randint(10, 19), 5 * rng.randint(1, 9), rng.random() < 0.6) for _ in range(tests)]
    spec = rng.choice((5, 10, 20, 25, 40, 50, 100)), some
    return f"{spec[0]} {sorted(some)}", spec


def pose(spec: Spec) -> dict[str, Any]:
    n, tests = spec
    odds = Fraction(1, n - 1)
    for right, wrong, alarm in tests:
        odds *= Fraction(right, wrong) if alarm else Fraction(100 - right, 100 - wrong)
    told = [
        f"Test {i} gives an alarm for {right}% of faulty and {wrong}% of sound machines and {'gave one' if alarm else 'gave none'}"
        for i, (right, wrong, alarm) in enumerate(tests, 1)
    ]
    return {
        "prompt": WORDINGS.write(n=n, tests="; ".join(told)),
        "answer": str(odds / (1 + odds)),
        "verifier": "number",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    tests = re.findall(r"for (\d+)% of faulty and (\d+)% of sound machines and gave (one|none)", read["tests"])
    many = int(read["n"]) * 100 ** len(tests)  # machines, so that every group is a whole number
    faulty = many // int(read["n"]) * prod(int(a) if verdict == "one" else 100 - int(a) for a, _, verdict in tests)
    sound = (many - many // int(read["n"])) * prod(
        int(b) if verdict == "one" else 100 - int(b) for _, b, verdict in tests
    )
    return str(Fraction(faulty, faulty + sound))
