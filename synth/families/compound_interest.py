"""Savings that grow by compound interest, with a deposit every year.

Certificate: the sum of a geometric series on the values against an account kept year by year from the text.
Difficulty axes: years, deposits.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"years": 2, "deposits": False},
    {"years": 3, "deposits": False},
    {"years": 3, "deposits": True},
    {"years": 5, "deposits": True},
)
CERTIFICATE = ("a geometric series", "an account kept year by year")
WORDINGS = Wordings(
    "Someone saves {p} dollars at {r} per cent interest a year, added at the end of each year{more}. What is in the account after {n} years?",
    "An account of {p} dollars earns {r} per cent compound interest at every year's end{more}. Find its balance after {n} years.",
    "{p} dollars are invested for {n} years, and {r} per cent interest is added at the end of every year{more}. What do they become?",
    "A bank adds {r} per cent of the balance at the end of every year{more}. The balance is {p} dollars at first. Compute it {n} years later.",
    "A fund of {p} dollars grows by {r} per cent of what it then holds at the end of each of {n} years{more}. What is it worth in the end?",
    answer="Do not round. Answer with the number of dollars, an integer or a decimal.",
    more=r"(?:; each time directly after that, the last time too, \d+ dollars are paid in)?",
)
Spec = tuple[int, int, int, int]


def compound_interest(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="compound_interest",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, years: int, deposits: bool) -> tuple[str, Spec]:
    p, r = 1000 * rng.randint(1, 40), rng.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20))
    n, more = rng.randint(max(2, years - 1), years), 100 * rng.randint(1, 30) if deposits else 0
    return f"{p} {r} {n} {more}", (p, r, n, more)


def decimal(value: Fraction) -> str:
    places = next(k for k in range(20) if (value * 10**k).denominator == 1)
    text = str(int(value * 10**places)).rjust(places + 1, "0")
    return f"{text[:-places]}.{text[-places:]}" if places else text


def pose(spec: Spec) -> dict[str, Any]:
    p, r, n, more = spec
    factor = 1 + Fraction(r, 100)
    value = p * factor**n + more * (factor**n - 1) / (factor - 1)
    return {
        "prompt": WORDINGS.write(
            p=p,
            r=r,
            n=n,
            more=f"; each time directly after that, the last time too, {more} dollars are paid in" if more else "",
        ),
        "answer": decimal(value),
        "verifier": "number",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    deposit = integers(fields["more"])
    cents, places = int(fields["p"]), 0  # the balance in units of 10^-places
    for _ in range(int(fields["n"])):
        cents, places = cents * (100 + int(fields["r"])), places + 2
        if deposit:
            cents += deposit[0] * 10**places
    return str(Fraction(cents, 10**places))
