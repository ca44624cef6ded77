"""Sums and differences of Roman numerals.

Certificate: integers and a greedy table on the values against signs read one by one and written digit by digit.
Difficulty axes: terms, size of the numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"terms": 2, "size": 20}, {"terms": 2, "size": 120}, {"terms": 3, "size": 500}, {"terms": 4, "size": 950})
CERTIFICATE = ("a greedy table", "signs of the text one by one")
WORDINGS = Wordings(
    "Compute {sum}.",
    "What is {sum} in Roman numerals?",
    "Work out {sum}, in which all numbers are Roman numerals.",
    "A Roman clerk notes {sum}. What is the result?",
    "Add and subtract from left to right: {sum}.",
    answer="Answer with one Roman numeral in the usual form, with signs such as IV and XC.",
    sum=r"[IVXLCDM]+(?: [-+] [IVXLCDM]+)+",
)
TABLE = {
    1000: "M",
    900: "CM",
    500: "D",
    400: "CD",
    100: "C",
    90: "XC",
    50: "L",
    40: "XL",
    10: "X",
    9: "IX",
    5: "V",
    4: "IV",
    1: "I",
}
_SIGNS = dict(zip("IVXLCDM", (1, 5, 10, 50, 100, 500, 1000), strict=True))
Spec = list[int]


def roman_numerals(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: a Roman numeral. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="roman_numerals",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, terms: int, size: int) -> tuple[str, Spec]:
    while True:
        spec = [rng.randint(2, size)] + [rng.choice((1, 1, -1)) * rng.randint(2, size) for _ in range(terms - 1)]
        if all(total > 0 for total in accumulate(spec)) and sum(spec) < 4000:
            return f"{spec[0]} {sorted(spec[1:])}", spec


def roman(number: int) -> str:
    out = ""
    for value, signs in TABLE.items():
        out += signs * (number // value)
        number %= value
    return out


def pose(spec: Spec) -> dict[str, Any]:
    text = roman(spec[0]) + "".join(f" {'-' if x < 0 else '+'} {roman(abs(x))}" for x in spec[1:])
    return {
        "prompt": WORDINGS.write(sum=text),
        "answer": roman(sum(spec)),
        "verifier": "exact",
        "working": f"{' '.join(f'{x:+}' for x in spec)} = {sum(spec)}.",
    }


def solve(question: str) -> str:
    total, sign = 0, 1
    for part in WORDINGS.read(question)["sum"].split():
        if part in "+-":
            sign = 1 if part == "+" else -1
            continue
        values = [_SIGNS[c] for c in part]
        for here, after in zip(values, [*values[1:], 0], strict=True):
            total += sign * (here if here >= after else -here)
    out = "M" * (total // 1000)
    for digit, (one, five, ten) in zip(f"{total % 1000:03}", ("CDM", "XLC", "IVX"), strict=True):
        d = int(digit)
        out += one + ten if d == 9 else one + five if d == 4 else five * (d > 4) + one * (d % 5)
    return out
