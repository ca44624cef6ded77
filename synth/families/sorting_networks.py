"""What a network of comparators makes of a list.

Certificate: comparators applied to the values against the same network over ones and noughts for each threshold of
the text. Difficulty axes: wires, comparators.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"wires": 3, "comparators": 3},
    {"wires": 4, "comparators": 5},
    {"wires": 6, "comparators": 9},
    {"wires": 8, "comparators": 16},
)
CERTIFICATE = ("comparators on the values", "ones and noughts for each threshold of the text")
WORDINGS = Wordings(
    "The list is {items}. Compare places {pairs}, in this order: the smaller of the two goes to the first place named, the larger to the second. What is the list then?",
    "A sorting network with the comparators {pairs} gets the input {items}. Each puts the smaller number at its first place and the larger at its second. What comes out?",
    "For each of {pairs} in turn, exchange the numbers at these two places if the one at the first is larger. The list begins as {items}. How does it end?",
    "Apply compare-and-exchange at the places {pairs}, one after the other, to {items}, so that each time the first place gets the minimum. Give the result.",
    "Wires carry {items} and meet comparators at {pairs}, from left to right; the first wire of each gets the smaller number. What do the wires carry at the end?",
    answer="Places count from 1. Answer with the numbers in order, parted by spaces.",
    items=r"\d+(?: \d+)+",
    pairs=r"\d-\d(?:, \d-\d)*",
)
Spec = tuple[list[int], list[tuple[int, int]]]


def sorting_networks(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: whole numbers. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="sorting_networks",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, wires: int, comparators: int) -> tuple[str, Spec]:
    while True:
        items = rng.sample(range(1, 100), wires)
        pairs = [(a, b) for a, b in (sorted(rng.sample(range(wires), 2)) for _ in range(comparators))]
        if through(items, pairs) != items:
            return f"{items} {pairs}", (items, pairs)


def through(items: list[int], pairs: Sequence[tuple[int, int]]) -> list[int]:
    out = list(items)
    for a, b in pairs:
        out[a], out[b] = min(out[a], out[b]), max(out[a], out[b])
    return out


def pose(spec: Spec) -> dict[str, Any]:
    items, pairs = spec
    return {
        "prompt": WORDINGS.write(
            items=" ".join(map(str, items)), pairs=", ".join(f"{a + 1}-{b + 1}" for a, b in pairs)
        ),
        "answer": " ".join(map(str, through(items, pairs))),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    items = integers(fields["items"])
    pairs = [(int(a) - 1, int(b) - 1) for a, b in re.findall(r"(\d)-(\d)", fields["pairs"])]
    out = [0] * len(items)
    for limit in items:  # a place holds the largest limit that what comes out there still reaches
        bits = [x >= limit for x in items]
        for a, b in pairs:
            if bits[a] and not bits[b]:
                bits[a], bits[b] = False, True
        out = [max(here, limit) if bit else here for here, bit in zip(out, bits, strict=True)]
    return " ".join(map(str, out))
