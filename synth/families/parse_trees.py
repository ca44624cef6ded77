"""In how many ways brackets can be set in a sum or product so that it has a given value.

Certificate: a table over parts of the row on the values against every tree built from the text. Difficulty axes: numbers in the row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"n": 4}, {"n": 5}, {"n": 6}, {"n": 7})
CERTIFICATE = ("a table over parts of the row", "every tree built from the text")
WORDINGS = Wordings(
    "Brackets are set in {row} in every possible way, so that each operation acts on two values. What is the sum of the results of all ways?",
    "Consider all full bracketings of {row}. Add up what they give.",
    "The expression {row} has no precedence; brackets decide. Find the sum of its values over all ways to set the brackets.",
    "Each way to bracket {row} completely gives one number. What do these numbers add up to, a number that comes twice counted twice?",
    "Write {row} with brackets in all ways in which every operation joins two parts. Compute the total of all the values.",
    answer="Answer with one integer.",
    row=r"\d+(?: [-+*] \d+)+",
)
Spec = tuple[list[int], list[str]]


def parse_trees(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="parse_trees",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, n: int) -> tuple[str, Spec]:
    spec = [rng.randint(1, 9) for _ in range(n)], [rng.choice("+-*") for _ in range(n - 1)]
    return written(spec), spec


def written(spec: Spec) -> str:
    numbers, signs = spec
    return str(numbers[0]) + "".join(f" {s} {x}" for s, x in zip(signs, numbers[1:], strict=True))


def act(sign: str, x: int, y: int) -> int:
    return x + y if sign == "+" else x - y if sign == "-" else x * y


def pose(spec: Spec) -> dict[str, Any]:
    numbers, signs = spec
    n = len(numbers)
    table = {(i, i): Counter({x: 1}) for i, x in enumerate(numbers)}  # values of a part, with how many ways
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            table[i, j] = Counter()
            for cut in range(i, j):
                for x, ways in table[i, cut].items():
                    for y, more in table[cut + 1, j].items():
                        table[i, j][act(signs[cut], x, y)] += ways * more
    return {
        "prompt": WORDINGS.write(row=written(spec)),
        "answer": str(sum(x * ways for x, ways in table[0, n - 1].items())),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    words = WORDINGS.read(question)["row"].split()

    def values(part: list[str]) -> list[int]:
        if len(part) == 1:
            return [int(part[0])]
        out = []
        for i in range(1, len(part), 2):
            left, right = values(part[:i]), values(part[i + 1 :])
            out += [{"+": x + y, "-": x - y, "*": x * y}[part[i]] for x in left for y in right]
        return out

    return str(sum(values(words)))
