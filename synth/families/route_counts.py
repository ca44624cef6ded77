"""Count the routes through one-way streets.

Certificate: sums in the order of the drawn places against routes followed one by one through the text. Difficulty
axes: nodes, edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._networks import PAIRS, Edge, draw_network, read_pairs, write_pairs
from synth.families._sample import item
from synth.families._spread import by_answer
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"nodes": 5, "edges": 8}, {"nodes": 7, "edges": 14}, {"nodes": 9, "edges": 22}, {"nodes": 11, "edges": 32})
CERTIFICATE = ("sums in the order of the places", "routes followed one by one")
WORDINGS = Wordings(
    "One-way streets run from the first place to the second: {pairs}. How many different routes lead from {s} to {t}?",
    "Count the paths from {s} to {t} in the directed graph with the edges {pairs} (X-Y leads from X to Y).",
    "Water can flow along {pairs}, always from the first letter to the second. In how many ways can a drop get from {s} to {t}?",
    "Rumours pass only from the first to the second of each pair: {pairs}. Along how many different chains can one reach {t} from {s}?",
    "In a game you move from one field to another as follows, X-Y being a move from X to Y: {pairs}. Find the number of different ways to get from {s} to {t}.",
    answer="Answer with one integer.",
    pairs=PAIRS,
    s="[A-Z]",
    t="[A-Z]",
)
NETWORKS = 20
Spec = tuple[list[str], list[Edge]]


def route_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="route_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int, edges: int) -> tuple[str, Spec]:
    """All numbers of routes among the networks drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec]:
        names, roads = draw_network(rng, nodes, rng.randint(edges - 2, edges), 1)
        arrows = [(a, b, 1) if names.index(a) < names.index(b) else (b, a, 1) for a, b, _ in roads]
        count = routes(names, arrows)
        return (count if count > 1 else None), (names, arrows)

    names, arrows = by_answer(rng, once, NETWORKS)
    form = f"{names[0]} {names[-1]} {sorted(arrows)}"
    rng.shuffle(arrows)
    return form, (names, arrows)


def routes(names: Sequence[str], arrows: Sequence[Edge]) -> int:
    """All arrows lead forwards in the order of the names."""
    ways = dict.fromkeys(names, 0) | {names[0]: 1}
    for name in names:
        for a, b, _ in arrows:
            if a == name:
                ways[b] += ways[a]
    return ways[names[-1]]


def pose(spec: Spec) -> dict[str, Any]:
    names, arrows = spec
    return {
        "prompt": WORDINGS.write(pairs=write_pairs(arrows), s=names[0], t=names[-1]),
        "answer": str(routes(names, arrows)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pairs, waiting, arrived = read_pairs(fields["pairs"]), [fields["s"]], 0
    while waiting:
        here = waiting.pop()
        arrived += here == fields["t"]
        waiting += [b for a, b in pairs if a == here]
    return str(arrived)
