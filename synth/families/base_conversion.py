"""Write a number in another base.

Certificate: repeated division of the drawn number against summing the digits of the text by Horner's rule and taking
powers of the new base away. Difficulty axes: size of the number, bases.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"size": 999, "bases": (2, 10)},
    {"size": 4095, "bases": (2, 8, 10, 16)},
    {"size": 99_999, "bases": (3, 5, 7, 10, 12)},
    {"size": 9_999_999, "bases": tuple(range(2, 17))},
)
CERTIFICATE = ("repeated division", "Horner's rule, then subtraction of powers")
DIGITS = "0123456789abcdef"
_TEXT = re.compile(r"Write ([0-9a-f]+) \(base (\d+)\) in base (\d+)\.")
Spec = tuple[int, int, int]


def base_conversion(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the digits. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="base_conversion",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, size: int, bases: Sequence[int]) -> tuple[str, Spec]:
    number, (source, target) = rng.randint(2, size), rng.sample(bases, 2)
    return f"{number} {source} {target}", (number, source, target)


def digits(number: int, base: int) -> str:
    out = ""
    while number:
        number, digit = divmod(number, base)
        out = DIGITS[digit] + out
    return out or "0"


def pose(spec: Spec) -> dict[str, Any]:
    number, source, target = spec
    return {
        "prompt": f"Write {digits(number, source)} (base {source}) in base {target}.",
        "answer": digits(number, target),
        "verifier": "exact",
        "working": f"{number} in base 10" if 10 not in (source, target) else "",
    }


def solve(question: str) -> str:
    text, source, target = parsed(_TEXT, question).groups()
    number = 0
    for digit in text:
        number = number * int(source) + DIGITS.index(digit)
    power, base = 1, int(target)
    while power * base <= number:
        power *= base
    out = ""
    while power:
        count = 0
        while number >= power:
            number, count = number - power, count + 1
        out, power = out + DIGITS[count], power // base
    return out
