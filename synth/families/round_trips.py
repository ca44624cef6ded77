"""The shortest round trip through all places.

Certificate: a table over sets of visited places on the values against all orders of the text. Difficulty axes:
places, size of the distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations
from random import Random
from typing import Any

from synth.families._networks import ROADS, Edge, draw_network, read_network, write_network
from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"places": 4, "size": 9}, {"places": 5, "size": 20}, {"places": 6, "size": 40}, {"places": 7, "size": 60})
CERTIFICATE = ("a table over sets of places", "all orders of the text")
WORDINGS = Wordings(
    "Distances: {roads}. What is the length of the shortest round trip that visits every place once and ends where it began?",
    "A courier starts at {s}, visits every other place exactly once and returns to {s}. Distances: {roads}. How short can the tour be?",
    "Find the length of a shortest closed tour through all places, each visited once: {roads}.",
    "Flight prices in either direction are {roads}. What does the cheapest trip cost that begins and ends at {s} and lands at every other place exactly once?",
    "Take the travelling salesman problem with the distances {roads}. How long is the best tour from {s} through all other places, each once, and back?",
    answer="Answer with one integer.",
    roads=ROADS,
    s="[A-Z]",
)
Spec = list[Edge]


def round_trips(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="round_trips",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, places: int, size: int) -> tuple[str, Spec]:
    _, roads = draw_network(rng, places, places * (places - 1) // 2, size)
    form = f"{roads}"
    rng.shuffle(roads)
    return form, roads


def pose(spec: Spec) -> dict[str, Any]:
    cost = {(a, b): c for a, b, c in spec} | {(b, a): c for a, b, c in spec}
    names = sorted({x for a, b, _ in spec for x in (a, b)})
    best = {(frozenset(names[:1]), names[0]): 0}
    for _ in names[1:]:
        after: dict[tuple[frozenset[str], str], int] = {}
        for (seen, here), total in best.items():
            for x in names:
                if x not in seen:
                    key = (seen | {x}, x)
                    after[key] = min(after.get(key, 1 << 60), total + cost[here, x])
        best = after
    return {
        "prompt": WORDINGS.write(roads=write_network(spec), s=names[0]),
        "answer": str(min(total + cost[here, names[0]] for (_, here), total in best.items())),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    roads = read_network(WORDINGS.read(question)["roads"])
    length = {frozenset((a, b)): c for a, b, c in roads}
    first, *others = sorted({x for a, b, _ in roads for x in (a, b)})
    tours = []
    for order in permutations(others):
        if order[0] < order[-1]:  # a tour and its reverse are equally long
            tour = (first, *order, first)
            tours.append(sum(length[frozenset(step)] for step in pairwise(tour)))
    return str(min(tours))
