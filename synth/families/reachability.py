"""Which places can be reached along one-way roads.

Certificate: breadth-first search on the values against Warshall's transitive closure over the text. Difficulty axes:
nodes, edges.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"nodes": 5, "edges": 5}, {"nodes": 7, "edges": 9}, {"nodes": 10, "edges": 13}, {"nodes": 14, "edges": 19})
CERTIFICATE = ("breadth-first search on the values", "Warshall's closure over the text")
WORDINGS = Wordings(
    "One-way roads: {roads}. Which places can be reached from {start}?",
    "Starting at {start}, to which places can one drive along {roads}?",
    "A town has the one-way streets {roads}. Find all places to which a way leads from {start}.",
    "Messages travel along the links {roads}. Who can get a message from {start}?",
    "List every place that someone at {start} can get to over {roads}.",
    answer="A>B leads from A to B only. Answer with the letters of all that fit, {start} left out, parted by spaces.",
    roads="[A-Z]>[A-Z](?:, [A-Z]>[A-Z])*",
    start="[A-Z]",
)
_ROAD = re.compile(r"([A-Z])>([A-Z])")
Spec = tuple[list[tuple[str, str]], str]


def reachability(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the places in any order, the start itself left out. `levels` are the rungs of the
    ladder to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="reachability",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, nodes: int, edges: int) -> tuple[str, Spec]:
    names = rng.sample("ABCDEFGHJKLMNPQRSTUVWXYZ", nodes)
    start = names[0]
    roads = {(start, names[1])}
    while len(roads) < edges:
        roads.add(tuple(rng.sample(names, 2)))  # type: ignore[arg-type]
    listed = sorted(roads)
    form = f"{listed} {start}"
    rng.shuffle(listed)
    return form, (listed, start)


def pose(spec: Spec) -> dict[str, Any]:
    roads, start = spec
    waves, seen = [[start]], {start}
    while waves[-1]:
        wave = sorted({b for a, b in roads if a in waves[-1]} - seen)
        seen |= set(wave)
        waves.append(wave)
    return {
        "prompt": WORDINGS.write(roads=", ".join(f"{a}>{b}" for a, b in roads), start=start),
        "answer": " ".join(sorted(seen - {start})),
        "verifier": "item_set",
        "working": "; ".join(" ".join(w) for w in waves[1:-1]),
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    start, reach = read["start"], {(a, b) for a, b in _ROAD.findall(read["roads"])}
    names = {n for pair in reach for n in pair}
    for via in names:
        into, out = [a for a in names if (a, via) in reach], [b for b in names if (via, b) in reach]
        reach |= {(a, b) for a in into for b in out}
    return " ".join(sorted(b for a, b in reach if a == start and b != start))
