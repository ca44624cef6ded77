"""Greatest common divisor and least common multiple of two or three integers.

Certificate: Euclid's algorithm on the drawn numbers against prime factors of the numbers in the text. Difficulty axes:
how many numbers, size of the common factor and of the cofactors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from math import gcd, prod
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers, listed, read_kind
from synth.families.prime_factors import factors
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"numbers": 2, "factor": 12, "cofactor": 12, "kinds": ("greatest common divisor",)},
    {"numbers": 2, "factor": 40, "cofactor": 40, "kinds": ("greatest common divisor", "least common multiple")},
    {"numbers": 3, "factor": 40, "cofactor": 40, "kinds": ("greatest common divisor", "least common multiple")},
    {"numbers": 3, "factor": 300, "cofactor": 99, "kinds": ("greatest common divisor", "least common multiple")},
)
CERTIFICATE = ("Euclid's algorithm", "prime factors of the numbers in the text")
_FORM, _NUMBERS = "Answer with one integer.", r"\d+(?:, \d+)* and \d+"
WORDINGS = {
    "greatest common divisor": Wordings(
        "Find the greatest common divisor of {numbers}.",
        "What is the largest number that divides each of {numbers}?",
        "Compute the highest common factor of {numbers}.",
        "Which is the largest number by which each of {numbers} can be divided without a remainder?",
        "Ropes of {numbers} metres are cut into equal pieces, as long as possible, and nothing is left over. How many metres long is a piece?",
        answer=_FORM,
        numbers=_NUMBERS,
    ),
    "least common multiple": Wordings(
        "Find the least common multiple of {numbers}.",
        "What is the smallest number above 0 that each of {numbers} divides?",
        "Compute the smallest positive number that is a multiple of each of {numbers}.",
        "Of all common multiples of {numbers}, which is the smallest above 0?",
        "Lights that flash every {numbers} seconds have just flashed together. After how many seconds do they next flash together?",
        answer=_FORM,
        numbers=_NUMBERS,
    ),
}
Spec = tuple[str, tuple[int, ...]]


def common_divisors(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: one integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="common_divisors",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, numbers: int, factor: int, cofactor: int, kinds: Sequence[str]) -> tuple[str, Spec]:
    common = rng.randint(1, factor)
    chosen = tuple(common * rng.randint(2, cofactor) for _ in range(numbers))
    kind = rng.choice(kinds)
    return f"{kind} {sorted(chosen)}", (kind, chosen)


def pose(spec: Spec) -> dict[str, Any]:
    kind, numbers = spec
    step = gcd if kind.startswith("greatest") else lambda a, b: a * b // gcd(a, b)
    partial = [reduce(step, numbers[: i + 1]) for i in range(1, len(numbers))]
    return {
        "prompt": WORDINGS[kind].write(numbers=listed([*map(str, numbers)])),
        "answer": str(partial[-1]),
        "verifier": "number",
        "working": ", ".join(map(str, partial)),
    }


def solve(question: str) -> str:
    kind, read = read_kind(WORDINGS, question)
    counts = [Counter(factors(n)) for n in integers(read["numbers"])]
    merged = reduce(lambda a, b: a & b if kind.startswith("greatest") else a | b, counts)
    return str(prod(p**k for p, k in merged.items()))
