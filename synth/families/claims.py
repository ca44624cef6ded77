"""Which of three statements about the value of an expression are true? The variants of one expression are siblings: they
share their split.

After DeepTheorem (Zhang et al. 2025, arXiv 2505.23754): variants that follow from a theorem and variants that
contradict it, half of each, and a theorem counts where all of its variants are judged right: so that a guess is right
once in eight. Certificate: the statements are built to be true or false from the value by recursion; from the text a
shunting-yard and counting decide. Difficulty axes: terms, size of the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._arithmetic import evaluate, grow, shunting_yard, write
from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"terms": 2, "size": 20}, {"terms": 3, "size": 20}, {"terms": 4, "size": 50}, {"terms": 5, "size": 99})
CERTIFICATE = ("built from the value by recursion", "decided from the text by a shunting-yard and by counting")
KINDS = ("equal to", "above", "below", "divisible by")
_ONE = rf"is (?:{'|'.join(KINDS)}) -?\d+"
_CLAIM = re.compile(rf"is ({'|'.join(KINDS)}) (-?\d+)")
WORDINGS = Wordings(
    "Proved or disproved? {value} {claims}.",
    "Three claims are made about {value}: it {claims}. Is each of them proved or disproved?",
    "Someone says that {value} {claims}. Judge each of the three statements.",
    "Check three statements: {value} {claims}.",
    "Work out {value}. Is it true that it {claims}?",
    answer="Answer with three words, proved or disproved, in order.",
    value=r"[-+*() \d]+",
    claims=rf"{_ONE}, {_ONE} and {_ONE}",
)


def claims(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: three times proved or disproved. `levels` are the levels to draw from."""
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
    return write(tree), (write(tree), [_statement(rng, value, kind) for kind in rng.sample(KINDS, 3)])


def _statement(rng: Random, value: int, kind: str) -> tuple[str, int, bool]:
    """(kind, number, whether it is true of the value), true half of the time."""
    true, off = rng.random() < 0.5, rng.randint(1, 9)
    if kind == "divisible by":
        fitting = [d for d in range(2, 10) if (value % d == 0) == true]
        if fitting:
            return kind, rng.choice(fitting), true
        kind = "equal to"  # every number from 2 to 9 divides 0, none of them divides 1
    number = {
        "equal to": value if true else value + rng.choice((-1, 1)) * off,
        "above": value - off if true else value + off - 1,
        "below": value + off if true else value - off + 1,
    }[kind]
    return kind, number, true


def pose(spec: tuple) -> dict[str, Any]:
    text, statements = spec
    claimed = listed([f"is {kind} {number}" for kind, number, _ in statements])
    return {
        "prompt": WORDINGS.write(value=text, claims=claimed),
        "answer": ", ".join("proved" if true else "disproved" for _, _, true in statements),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    left = shunting_yard(read["value"])
    return ", ".join(
        "proved" if _holds(left, kind, int(number)) else "disproved" for kind, number in _CLAIM.findall(read["claims"])
    )


def _holds(left: Fraction, kind: str, right: int) -> bool:
    if kind == "divisible by":
        if right < 2:
            raise Refused("roundtrip: a divisor below 2")
        rest = abs(left)
        while rest >= right:
            rest -= right * max(1, int(rest // right))
        return rest == 0
    difference = left - right
    return {"equal to": difference == 0, "above": difference > 0, "below": difference < 0}[kind]
