"""The value of a chain of operations on the bits of numbers.

Certificate: operations on whole numbers on the values against one bit after the other. Difficulty axes: operations, number of bits.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"operations": 2, "bits": 5},
    {"operations": 3, "bits": 6},
    {"operations": 5, "bits": 8},
    {"operations": 8, "bits": 10},
)
CERTIFICATE = ("operations on whole numbers", "one bit after the other")
WORDINGS = Wordings(
    "What is {chain}, worked out from left to right on the binary digits?",
    "Evaluate {chain} strictly from left to right, bit by bit.",
    "A register goes through {chain}, from left to right. Which number does it hold at the end?",
    "Compute {chain}, taking the bitwise operations one after the other from the left.",
    "Working from left to right and ignoring any precedence, what does {chain} give?",
    answer="All numbers are decimal. Answer with one decimal integer.",
    chain=r"\d+(?: (?:AND|OR|XOR) \d+)+",
)
Spec = tuple[int, list[tuple[str, int]]]


def bit_operations(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="bit_operations",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, operations: int, bits: int) -> tuple[str, Spec]:
    low, high = 2 ** (bits - 1), 2**bits - 1
    spec = (
        rng.randint(low, high),
        [(rng.choice(("AND", "OR", "XOR")), rng.randint(low // 2, high)) for _ in range(operations)],
    )
    return str(spec), spec


def pose(spec: Spec) -> dict[str, Any]:
    value, chain = spec
    for name, x in chain:
        value = value & x if name == "AND" else value | x if name == "OR" else value ^ x
    return {
        "prompt": WORDINGS.write(chain=" ".join([str(spec[0]), *(f"{name} {x}" for name, x in chain)])),
        "answer": str(value),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    words = re.split(" ", WORDINGS.read(question)["chain"])
    columns = [f"{int(x):b}".zfill(12) for x in words[::2]]
    out = ""
    for digits in zip(*columns, strict=True):
        bit = digits[0]
        for name, other in zip(words[1::2], digits[1:], strict=True):
            ones = (bit + other).count("1")
            bit = str(int({"AND": ones == 2, "OR": ones > 0, "XOR": ones == 1}[name]))
        out += bit
    return str(int(out, 2))
