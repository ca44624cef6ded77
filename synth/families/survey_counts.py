"""How many of a group do none, exactly one or exactly two of some things.

Certificate: the drawn regions of the diagram against inclusion and exclusion over the text. Difficulty axes: things
asked about, size of the regions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import combinations
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"things": 2, "size": 12, "kinds": ("none",)},
    {"things": 3, "size": 15, "kinds": ("none",)},
    {"things": 3, "size": 30, "kinds": ("exactly one", "none")},
    {"things": 3, "size": 90, "kinds": ("exactly one", "exactly two")},
)
CERTIFICATE = ("regions of the diagram", "inclusion and exclusion over the text")
THINGS = ("tea", "coffee", "juice", "milk", "cocoa", "water")
WORDINGS = Wordings(
    "Of {n} guests, {counts}. How many guests drink {kind} of these drinks?",
    "{n} people were asked what they drink: {counts}. How many people drink {kind} of these drinks?",
    "In a survey of {n} pupils, {counts}. How many pupils drink {kind} of these drinks?",
    "A café has {n} regulars; {counts}. How many regulars drink {kind} of these drinks?",
    "Among {n} workers, {counts}. How many workers drink {kind} of these drinks?",
    answer="Whoever drinks several is counted for each of them. Answer with one integer.",
    counts=r"[\da-z, ]+",
    kind="none|exactly one|exactly two",
)
Spec = tuple[Sequence[str], dict[int, int], str]


def survey_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="survey_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, things: int, size: int, kinds: Sequence[str]) -> tuple[str, Spec]:
    names, regions = rng.sample(THINGS, things), {m: rng.randint(1, size) for m in range(1 << things)}
    kind = rng.choice(kinds)
    return f"{sorted(names)} {sorted(regions.items())} {names} {kind}", (names, regions, kind)


def pose(spec: Spec) -> dict[str, Any]:
    names, regions, kind = spec
    told = []
    for size in range(1, len(names) + 1):
        for picked in combinations(range(len(names)), size):
            n = sum(c for m, c in regions.items() if all(m >> i & 1 for i in picked))
            told.append(f"{n} {'drinks' if n == 1 else 'drink'} {listed([names[i] for i in picked])}")
    wanted = {"none": 0, "exactly one": 1, "exactly two": 2}[kind]
    return {
        "prompt": WORDINGS.write(n=sum(regions.values()), counts=", ".join(told), kind=kind),
        "answer": str(sum(c for m, c in regions.items() if m.bit_count() == wanted)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    sums: dict[int, int] = {}
    for n, text in re.findall(r"(\d+) drinks? ([a-z]+(?:(?:, | and )[a-z]+)*)", fields["counts"]):
        size = len(re.split(", | and ", text))
        sums[size] = sums.get(size, 0) + int(n)
    one, two, three = (sums.get(k, 0) for k in (1, 2, 3))
    if fields["kind"] == "none":
        return str(int(fields["n"]) - one + two - three)
    return str(one - 2 * two + 3 * three if fields["kind"] == "exactly one" else two - 3 * three)
