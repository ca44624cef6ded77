"""The next term of a sequence in which each term is a fixed combination of those before it.

Certificate: the terms made from the drawn factors against factors found by elimination from the text. Difficulty
axes: order, size of the factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"order": 2, "size": 3, "first": 5},
    {"order": 2, "size": 6, "first": 9},
    {"order": 3, "size": 3, "first": 6},
    {"order": 4, "size": 2, "first": 5},
)
CERTIFICATE = ("made from the factors", "factors by elimination from the text")
WORDINGS = Wordings(
    "In the sequence {terms}, ... each term after the first {order} is the same combination, with whole-number factors, of the {order} terms before it. What is the next term?",
    "In {terms}, ... the first {order} terms are free, and every later one is the same sum of whole multiples of the {order} terms just before it. Which number comes next?",
    "Find the next number: {terms}, ... Each is made from the {order} numbers before it by multiplying them by fixed whole numbers and adding up; only the first {order} are given freely.",
    "A linear recurrence of order {order} with constant whole-number coefficients and no constant term makes the sequence {terms}, ... What is its next term?",
    "The sequence {terms}, ... obeys a linear recurrence of order {order}, with fixed whole-number coefficients and no constant term. Continue it by one term.",
    answer="Answer with one integer.",
    terms=r"[-\d, ]+",
)
Spec = tuple[int, list[int], int]


def linear_recurrences(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="linear_recurrences",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, order: int, size: int, first: int) -> tuple[str, Spec]:
    while True:
        factors = [rng.choice([k for k in range(-size, size + 1) if k]) for _ in range(order)]
        terms = [rng.randint(-first, first) for _ in range(order)]
        while len(terms) < 2 * order + 1:
            terms.append(sum(k * x for k, x in zip(factors, terms[-order:], strict=True)))
        if eliminated([terms[i : i + order + 1] for i in range(order)]) is not None:
            return f"{terms}", (order, terms[:-1], terms[-1])


def eliminated(rows: list[list[int]]) -> list[Fraction] | None:
    """The only solution of linear equations, each its coefficients and its right side; None where there is not just one."""
    table = [[Fraction(x) for x in row] for row in rows]
    for k in range(len(table)):
        at = next((i for i in range(k, len(table)) if table[i][k]), None)
        if at is None:
            return None
        table[k], table[at] = table[at], table[k]
        table[k] = [x / table[k][k] for x in table[k]]
        for i, row in enumerate(table):
            if i != k:
                table[i] = [x - row[k] * y for x, y in zip(row, table[k], strict=True)]
    return [row[-1] for row in table]


def pose(spec: Spec) -> dict[str, Any]:
    order, terms, following = spec
    return {
        "prompt": WORDINGS.write(terms=", ".join(map(str, terms)), order=order),
        "answer": str(following),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    order, terms = int(fields["order"]), integers(fields["terms"])
    factors = eliminated([terms[i : i + order + 1] for i in range(order)])
    if factors is None or len(terms) != 2 * order:
        raise Refused("not_unique: more than one recurrence makes these terms")
    return str(sum(k * x for k, x in zip(factors, terms[-order:], strict=True)))
