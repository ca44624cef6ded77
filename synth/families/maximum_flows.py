"""How much can flow through a network of one-way pipes.

Certificate: augmenting paths on the values against the least of all cuts of the text. Difficulty axes: nodes, edges,
size of the capacities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

from synth.families._networks import ROADS, Edge, draw_network, read_network, write_network
from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"nodes": 4, "edges": 5, "capacity": 9},
    {"nodes": 5, "edges": 8, "capacity": 12},
    {"nodes": 6, "edges": 11, "capacity": 20},
    {"nodes": 8, "edges": 17, "capacity": 30},
)
CERTIFICATE = ("augmenting paths", "the least of all cuts of the text")
WORDINGS = Wordings(
    "One-way pipes and their capacities: {roads} (A-B means from A to B). What is the greatest flow from {s} to {t}?",
    "In this network, X-Y n is a link from X to Y that carries at most n units a second: {roads}. How many units a second can go from {s} to {t}?",
    "Find the maximum flow from {s} to {t} in the directed graph with the edges and capacities {roads}.",
    "Goods travel along one-way tracks, each from the first place to the second with a daily limit: {roads}. What is the largest amount that can go from {s} to {t} in a day?",
    "The directed edges {roads} are given with their capacities. What is the value of a maximum flow with source {s} and sink {t}?",
    answer="What flows into a place other than these two flows out of it. Answer with one integer.",
    roads=ROADS,
    s="[A-Z]",
    t="[A-Z]",
)
Spec = tuple[list[Edge], str, str]


def maximum_flows(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="maximum_flows",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int, edges: int, capacity: int) -> tuple[str, Spec]:
    while True:
        names, roads = draw_network(rng, nodes, edges, capacity)
        at = {name: i for i, name in enumerate(names)}
        pipes = [(a, b, c) if at[a] < at[b] or rng.random() < 0.2 else (b, a, c) for a, b, c in roads]
        if greatest(pipes, names[0], names[-1]):
            form = f"{sorted(pipes)} {names[0]} {names[-1]}"
            rng.shuffle(pipes)
            return form, (pipes, names[0], names[-1])


def greatest(pipes: Sequence[Edge], source: str, sink: str) -> int:
    left: dict[tuple[str, str], int] = {}
    for a, b, c in pipes:
        left[a, b] = left.get((a, b), 0) + c
        left.setdefault((b, a), 0)
    total = 0
    while True:
        came, waiting = {source: source}, deque([source])
        while waiting:
            here = waiting.popleft()
            for (a, b), room in left.items():
                if a == here and room and b not in came:
                    came[b] = a
                    waiting.append(b)
        if sink not in came:
            return total
        way = [sink]
        while way[-1] != source:
            way.append(came[way[-1]])
        steps = [(a, b) for b, a in pairwise(way)]
        more = min(left[step] for step in steps)
        for a, b in steps:
            left[a, b] -= more
            left[b, a] += more
        total += more


def pose(spec: Spec) -> dict[str, Any]:
    pipes, source, sink = spec
    return {
        "prompt": WORDINGS.write(roads=write_network(pipes), s=source, t=sink),
        "answer": str(greatest(pipes, source, sink)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pipes = read_network(fields["roads"])
    inner = sorted({x for a, b, _ in pipes for x in (a, b)} - {fields["s"], fields["t"]})
    cuts = []
    for bits in range(1 << len(inner)):
        near = {fields["s"], *(x for i, x in enumerate(inner) if bits >> i & 1)}
        cuts.append(sum(c for a, b, c in pipes if a in near and b not in near))
    return str(min(cuts))
