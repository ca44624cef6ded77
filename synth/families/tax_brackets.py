"""What is paid on an income that is taxed in brackets.

Certificate: the part of the income in each bracket on the values against the same sum in differences of rates, from the text. Difficulty axes: number of brackets.
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

LADDER = ({"brackets": 2}, {"brackets": 3}, {"brackets": 4}, {"brackets": 6})
CERTIFICATE = ("the part of the income in each bracket", "the same sum in differences of rates, from the text")
WORDINGS = Wordings(
    "In a country, {rates}. Each rate holds only for the part of the income in its bracket. How many crowns of tax does somebody with {income} crowns pay?",
    "The tax is graded: {rates}. A rate is paid only on what lies within its bracket. Find the tax in crowns on an income of {income} crowns.",
    "Somebody earns {income} crowns. Of this, {rates}, each rate for the part within its bracket alone. What is the tax in crowns?",
    "Under a new law {rates}, where a rate never touches what lies below its bracket. Compute the tax in crowns for {income} crowns.",
    "The rules say: {rates}. Only the part of an income that is in a bracket bears its rate. How much tax in crowns is due on {income} crowns?",
    answer="Answer with a fraction such as 3/8, or an integer.",
    rates=r"[a-z\d%, ]+",
)
Spec = tuple[list[tuple[int, int]], int]


def tax_brackets(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer or fraction. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="tax_brackets",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, brackets: int) -> tuple[str, Spec]:
    starts = [0, *sorted(100 * x for x in rng.sample(range(20, 30 * brackets + 20), brackets - 1))]
    rates = sorted(rng.sample(range(1, 60), brackets))
    income = starts[-1] + 10 * rng.randint(1, 500)
    spec = list(zip(starts, rates, strict=True)), income
    return str(spec), spec


def pose(spec: Spec) -> dict[str, Any]:
    brackets, income = spec
    ends = [start for start, _ in brackets[1:]] + [income]
    tax = sum(Fraction((end - start) * rate, 100) for (start, rate), end in zip(brackets, ends, strict=True))
    told = [f"{rate}% is paid on what is above {start} crowns" for start, rate in brackets]
    told = [t if i == len(told) - 1 else f"{t} and up to {ends[i]} crowns" for i, t in enumerate(told)]
    return {
        "prompt": WORDINGS.write(rates=", ".join(told), income=income),
        "answer": str(tax),
        "verifier": "number",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    tax, before = Fraction(0), 0
    for rate, start in re.findall(r"(\d+)% is paid on what is above (\d+) crowns", read["rates"]):
        above = max(0, int(read["income"]) - int(start))
        tax += Fraction((int(rate) - before) * above, 100)
        before = int(rate)
    return str(tax)
