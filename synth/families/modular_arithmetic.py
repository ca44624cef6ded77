"""Remainders: a power modulo m, a product and sum modulo m, an inverse modulo m.

Certificate: repeated squaring and the extended Euclidean algorithm against repeated multiplication and search over all
remainders. Difficulty axes: size of the modulus, of the exponent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import gcd
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"modulus": 20, "size": 99, "exponent": 0, "kinds": ("sum",)},
    {"modulus": 30, "size": 30, "exponent": 12, "kinds": ("power", "sum")},
    {"modulus": 97, "size": 300, "exponent": 60, "kinds": ("power", "inverse", "sum")},
    {"modulus": 499, "size": 9999, "exponent": 300, "kinds": ("power", "inverse", "sum")},
)
CERTIFICATE = ("repeated squaring, extended Euclid", "repeated multiplication, search over all remainders")
_POWER = re.compile(r"What is (\d+)\^(\d+) mod (\d+)\?")
_SUM = re.compile(r"What is \((\d+) \* (\d+) \+ (\d+)\) mod (\d+)\?")
_INVERSE = re.compile(r"What is the inverse of (\d+) modulo (\d+)\?")
Spec = tuple[str, tuple[int, ...]]


def modular_arithmetic(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a remainder from 0 to m - 1. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="modular_arithmetic",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, modulus: int, size: int, exponent: int, kinds: Sequence[str]) -> tuple[str, Spec]:
    kind, m = rng.choice(kinds), rng.randint(3, modulus)
    if kind == "power":
        numbers: tuple[int, ...] = (rng.randint(2, size), rng.randint(2, exponent), m)
    elif kind == "sum":
        numbers = (rng.randint(2, size), rng.randint(2, size), rng.randint(1, size), m)
    else:
        a = rng.randint(2, size)
        while gcd(a, m) != 1:
            a = rng.randint(2, size)
        numbers = (a, m)
    return f"{kind} {numbers}", (kind, numbers)


def pose(spec: Spec) -> dict[str, Any]:
    kind, numbers = spec
    m = numbers[-1]
    if kind == "power":
        prompt, answer, working = (
            f"What is {numbers[0]}^{numbers[1]} mod {m}?",
            pow(numbers[0], numbers[1], m),
            f"{numbers[0]} mod {m} = {numbers[0] % m}",
        )
    elif kind == "sum":
        a, b, c = numbers[:3]
        prompt, answer, working = (
            f"What is ({a} * {b} + {c}) mod {m}?",
            (a * b + c) % m,
            f"{a} * {b} + {c} = {a * b + c}",
        )
    else:
        a, answer = numbers[0], pow(numbers[0], -1, m)
        prompt, working = f"What is the inverse of {a} modulo {m}?", f"{a} * {answer} = {a * answer}"
    return {
        "prompt": prompt,
        "answer": str(answer),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": working,
    }


def solve(question: str) -> str:
    if match := _POWER.fullmatch(question):
        base, exponent, m = map(int, match.groups())
        value = 1
        for _ in range(exponent):
            value = value * base % m
        return str(value)
    if match := _SUM.fullmatch(question):
        a, b, c, m = map(int, match.groups())
        return str((a % m * (b % m) + c % m) % m)
    a, m = map(int, parsed(_INVERSE, question).groups())
    inverses = [x for x in range(m) if a * x % m == 1]
    if len(inverses) != 1:
        raise Refused(f"not_unique: {a} has the inverses {inverses} modulo {m}")
    return str(inverses[0])
