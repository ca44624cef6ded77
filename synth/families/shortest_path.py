"""The shortest path between two places of a road network.

Certificate: Dijkstra's algorithm on the values against Bellman-Ford over the text; the verifier takes any path of the
least cost. Difficulty axes: nodes, edges, size of the costs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._networks import ROADS, Edge, draw_network, read_network, write_network
from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"nodes": 4, "edges": 5, "cost": 9},
    {"nodes": 6, "edges": 9, "cost": 9},
    {"nodes": 8, "edges": 13, "cost": 20},
    {"nodes": 11, "edges": 20, "cost": 40},
)
CERTIFICATE = ("Dijkstra on the values", "Bellman-Ford over the text")
WORDINGS = Wordings(
    "Roads: {roads}. Find the shortest path from {start} to {goal}.",
    "Which is the shortest way from {start} to {goal} on the roads {roads}?",
    "The distances between neighbouring towns are {roads}. How does one get from {start} to {goal} over the least distance?",
    "A map has the roads {roads}, each with its length. Name the places of a shortest route from {start} to {goal}.",
    "A driver wants to get from {start} to {goal} on as short a route as possible. The roads are {roads}. Which route is that?",
    answer="Roads may be used both ways. Answer with the places in order, {start} and {goal} included, parted by spaces.",
    roads=ROADS,
    start="[A-Z]",
    goal="[A-Z]",
)
Spec = tuple[list[Edge], str, str]


def shortest_path(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the places on the way. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="shortest_path",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int, edges: int, cost: int) -> tuple[str, Spec]:
    names, roads = draw_network(rng, nodes, edges, cost)
    pairs = {(a, b) for a, b, _ in roads}
    start, goal = rng.sample(names, 2)
    while (min(start, goal), max(start, goal)) in pairs and edges < nodes * (nodes - 1) / 2 and rng.random() < 0.8:
        start, goal = rng.sample(names, 2)  # neighbours are the easy case
    form = f"{roads} {sorted((start, goal))}"
    rng.shuffle(roads)
    return form, (roads, start, goal)


def pose(spec: Spec) -> dict[str, Any]:
    roads, start, goal = spec
    near: dict[str, list[tuple[int, str]]] = {}
    for a, b, cost in roads:
        near.setdefault(a, []).append((cost, b))
        near.setdefault(b, []).append((cost, a))
    waiting, done = [(0, [start])], set()
    while waiting:
        cost, walk = heapq.heappop(waiting)
        if walk[-1] == goal:
            break
        if walk[-1] not in done:
            done.add(walk[-1])
            for more, node in near[walk[-1]]:
                if node not in done:
                    heapq.heappush(waiting, (cost + more, [*walk, node]))
    return {
        "prompt": WORDINGS.write(roads=write_network(roads), start=start, goal=goal),
        "answer": " ".join(walk),
        "verifier": "path",
        "args": {"edges": [list(r) for r in roads], "start": start, "goal": goal, "cost": cost},
        "working": f"Length {cost}.",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    start, goal = read["start"], read["goal"]
    roads = read_network(read["roads"])
    roads += [(b, a, c) for a, b, c in roads]
    cost: dict[str, int] = {start: 0}
    came: dict[str, str] = {}
    for _ in roads:
        changed = False
        for a, b, c in roads:
            if a in cost and cost[a] + c < cost.get(b, 1 << 60):
                cost[b], came[b], changed = cost[a] + c, a, True
        if not changed:
            break
    if goal not in cost:
        raise Refused(f"impossible: {goal} cannot be reached from {start}")
    walk = [goal]
    while walk[-1] != start:
        walk.append(came[walk[-1]])
    return " ".join(reversed(walk))
