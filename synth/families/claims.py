"""Is a statement about the value of an expression true? The variants of one expression are siblings: they share their
split.

After DeepTheorem (Zhang et al. 2025, arXiv 2505.23754): variants that follow from a theorem and variants that
contradict it, half of each. Certificate: the statement is built to be true or false from the value by recursion; from
the text a shunting-yard and counting decide. Difficulty axes: terms, size of the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._arithmetic import evaluate, grow, shunting_yard, write
from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"terms": 2, "size": 20}, {"terms": 3, "size": 20}, {"terms": 4, "size": 50}, {"terms": 5, "size": 99})
CERTIFICATE = ("built from the value by recursion", "decided from the text by a shunting-yard and by counting")
_TEXT = re.compile(r"Proved or disproved\? ([-+*() \d]+) is (equal to|above|below|divisible by) (-?\d+)\.")


def claims(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: proved or disproved. `levels` are the rungs of the ladder to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="claims",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int) -> tuple[str, tuple]:
    tree = grow(rng, terms, "+-*", lambda r: Fraction(r.randint(1, size)))
    value = int(evaluate(tree, []))
    kind, true = rng.choice(("equal to", "above", "below", "divisible by")), rng.random() < 0.5
    off = rng.randint(1, 9)
    number = {
        "equal to": value if true else value + rng.choice((-1, 1)) * off,
        "above": value - off if true else value + off - 1,
        "below": value + off if true else value - off + 1,
    }.get(kind, 0)
    if kind == "divisible by":
        fitting = [d for d in range(2, 10) if (value % d == 0) == true]
        if not fitting:  # every number from 2 to 9 divides 0, none of them divides 1
            kind, number = "equal to", value if true else value + off
        else:
            number = rng.choice(fitting)
    return write(tree), (write(tree), kind, number, true)


def pose(spec: tuple) -> dict[str, Any]:
    text, kind, number, true = spec
    return {
        "prompt": f"Proved or disproved? {text} is {kind} {number}.",
        "answer": "proved" if true else "disproved",
        "verifier": "exact",
    }


def solve(question: str) -> str:
    text, kind, number = parsed(_TEXT, question).groups()
    left, right = shunting_yard(text), int(number)
    if kind == "divisible by":
        if right < 2:
            raise Refused("roundtrip: a divisor below 2")
        rest = abs(left)
        while rest >= right:
            rest -= right * max(1, int(rest // right))
        holds = rest == 0
    else:
        difference = left - right
        holds = {"equal to": difference == 0, "above": difference > 0, "below": difference < 0}[kind]
    return "proved" if holds else "disproved"
