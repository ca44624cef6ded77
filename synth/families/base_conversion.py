"""Write a number in another base.

Certificate: repeated division of the drawn number against summing the digits of the text by Horner's rule and taking
powers of the new base away. Difficulty axes: size of the number, bases.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"size": 999, "bases": (2, 10)},
    {"size": 4095, "bases": (2, 8, 10, 16)},
    {"size": 99_999, "bases": (3, 5, 7, 10, 12)},
    {"size": 9_999_999, "bases": tuple(range(2, 17))},
)
CERTIFICATE = ("repeated division", "Horner's rule, then subtraction of powers")
DIGITS = "0123456789abcdef"
WORDINGS = Wordings(
    "Write {number} (base {source}) in base {target}.",
    "Convert {number} from base {source} to base {target}.",
    "What does {number}, a number in base {source}, look like in base {target}?",
    "In base {source} a number is written {number}. How is it written in base {target}?",
    "The digits {number} are meant in base {source}. Give the same number in base {target}.",
    answer="Answer with its digits; a to f stand for 10 to 15.",
    number="[0-9a-f]+",
    source=r"\d+",
    target=r"\d+",
)
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
        "prompt": WORDINGS.write(number=digits(number, source), source=source, target=target),
        "answer": digits(number, target),
        "verifier": "exact",
        "working": f"{number} in base 10" if 10 not in (source, target) else "",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    number, source = 0, int(read["source"])
    for digit in read["number"]:
        number = number * source + DIGITS.index(digit)
    power, base = 1, int(read["target"])
    while power * base <= number:
        power *= base
    out = ""
    while power:
        count = 0
        while number >= power:
            number, count = number - power, count + 1
        out, power = out + DIGITS[count], power // base
    return out
