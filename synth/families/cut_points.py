"""The places without which a network falls apart.

Certificate: low points of a depth-first search on the values against taking out each place of the text. Difficulty
axes: nodes, edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._networks import PAIRS, Edge, draw_network, read_pairs, write_pairs
from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"nodes": 5, "edges": 5}, {"nodes": 7, "edges": 8}, {"nodes": 9, "edges": 11}, {"nodes": 12, "edges": 14})
CERTIFICATE = ("low points of a depth-first search", "each place of the text taken out")
WORDINGS = Wordings(
    "Links: {pairs}. Which places would, if they failed, cut some of the others off from each other?",
    "Find all cut vertices of the graph with the edges {pairs}.",
    "Friends pass news along {pairs}. Which of them must not be away, or else news no longer gets from each of the others to every other?",
    "A network has the cables {pairs}. List every node whose removal disconnects the remaining nodes.",
    "Roads run between {pairs}. Which places, if closed, part the others into two or more pieces?",
    answer="Answer with their letters, parted by spaces.",
    pairs=PAIRS,
)
Spec = list[Edge]


def cut_points(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: letters. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="cut_points",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int, edges: int) -> tuple[str, Spec]:
    while True:
        _, roads = draw_network(rng, nodes, edges, 1)
        if cutting(roads):
            form = f"{roads}"
            rng.shuffle(roads)
            return form, roads


def cutting(roads: Sequence[Edge]) -> set[str]:
    near: dict[str, list[str]] = {}
    for a, b, _ in roads:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    depth: dict[str, int] = {}
    cut = set()

    def visit(here: str, above: str) -> int:
        depth[here] = low = len(depth)
        children = 0
        for x in near[here]:
            if x not in depth:
                children += 1
                below = visit(x, here)
                low = min(low, below)
                if (above and below >= depth[here]) or (not above and children > 1):
                    cut.add(here)
            elif x != above:
                low = min(low, depth[x])
        return low

    visit(min(near), "")
    return cut


def pose(spec: Spec) -> dict[str, Any]:
    return {
        "prompt": WORDINGS.write(pairs=write_pairs(spec)),
        "answer": " ".join(sorted(cutting(spec))),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    pairs = read_pairs(WORDINGS.read(question)["pairs"])
    names = sorted({x for pair in pairs for x in pair})
    cut = []
    for out in names:
        left = [x for x in names if x != out]
        reached, before = {left[0]}, 0
        while len(reached) > before:
            before = len(reached)
            for a, b in pairs:
                if out not in (a, b) and reached & {a, b}:
                    reached |= {a, b}
        if len(reached) < len(left):
            cut.append(out)
    return " ".join(cut)
