"""The least length of cable that joins all places of a network.

Certificate: Kruskal's algorithm on the values against Prim's over the text. Difficulty axes: nodes, edges, size of
the costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._networks import ROADS, Edge, draw_network, read_network, write_network
from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"nodes": 4, "edges": 5, "cost": 9},
    {"nodes": 6, "edges": 9, "cost": 20},
    {"nodes": 8, "edges": 14, "cost": 40},
    {"nodes": 11, "edges": 22, "cost": 90},
)
CERTIFICATE = ("Kruskal on the values", "Prim over the text")
WORDINGS = Wordings(
    "Possible cables and their costs: {roads}. What is the least total cost of cables that join all places, directly or through others?",
    "Roads with their lengths: {roads}. Some are to be paved so that every place can be reached from every other on paved roads. What is the least total length?",
    "Find the total weight of a minimum spanning tree of the graph with the edges {roads}.",
    "A network has the links {roads}, each with its price. What is the smallest total price of links that keep all nodes connected?",
    "Villages can be joined by pipes at these costs: {roads}. What is the cheapest total at which water from one village reaches all?",
    answer="Answer with one integer.",
    roads=ROADS,
)
Spec = list[Edge]


def spanning_trees(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="spanning_trees",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int, edges: int, cost: int) -> tuple[str, Spec]:
    _, roads = draw_network(rng, nodes, edges, cost)
    form = f"{roads}"
    rng.shuffle(roads)
    return form, roads


def pose(spec: Spec) -> dict[str, Any]:
    part = {x: x for a, b, _ in spec for x in (a, b)}  # each place and the name of its part
    taken = []
    for a, b, cost in sorted(spec, key=lambda road: road[2]):
        if part[a] != part[b]:
            taken.append((a, b, cost))
            old, new = part[a], part[b]
            part = {x: new if p == old else p for x, p in part.items()}
    return {
        "prompt": WORDINGS.write(roads=write_network(spec)),
        "answer": str(sum(cost for _, _, cost in taken)),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": f"Take {write_network(taken)}.",
    }


def solve(question: str) -> str:
    roads = read_network(WORDINGS.read(question)["roads"])
    reached, total = {roads[0][0]}, 0
    while any(len({a, b} - reached) for a, b, _ in roads):
        cost, near = min((c, {a, b} - reached) for a, b, c in roads if len({a, b} & reached) == 1)
        reached |= near
        total += cost
    return str(total)
