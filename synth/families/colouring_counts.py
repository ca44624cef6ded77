"""Count the colourings of a map's countries.

Certificate: deletion and contraction of borders on the values against all colourings of the text. Difficulty axes:
countries, borders, colours.
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

LADDER = (
    {"countries": 4, "borders": 4, "colours": 4},
    {"countries": 5, "borders": 6, "colours": 4},
    {"countries": 6, "borders": 8, "colours": 4},
    {"countries": 7, "borders": 10, "colours": 4},
)
CERTIFICATE = ("deletion and contraction", "colours tried country by country")
WORDINGS = Wordings(
    "Countries with a common border: {pairs}. In how many ways can all countries be coloured with at most {k} given colours so that neighbours differ?",
    "Count the proper colourings of the graph with the edges {pairs}, using {k} given colours, not necessarily all of them.",
    "Each place gets one of {k} channels, and linked places get different ones. Links: {pairs}. How many ways are there to do this?",
    "Find the number of ways to give each node of the graph {pairs} one of {k} colours so that no edge joins two nodes of one colour.",
    "Guests {pairs} (each pair named with a hyphen) must not sit at the same table. There are {k} different large tables, and some may stay empty. In how many ways can all be seated?",
    answer="Answer with one integer.",
    pairs=PAIRS,
)
MAPS = 12
Spec = tuple[list[Edge], int]


def colouring_counts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="colouring_counts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, countries: int, borders: int, colours: int) -> tuple[str, Spec]:
    """All numbers of ways among the maps drawn are equally likely."""

    def once(rng: Random) -> tuple[int | None, Spec]:
        _, roads = draw_network(rng, countries, rng.randint(borders - 1, borders), 1)
        k = rng.randint(colours - 1, colours)
        return coloured(frozenset(frozenset((a, b)) for a, b, _ in roads), countries, k) or None, (roads, k)

    roads, k = by_answer(rng, once, MAPS)
    form = f"{roads} {k}"
    rng.shuffle(roads)
    return form, (roads, k)


def coloured(edges: frozenset[frozenset[str]], nodes: int, k: int) -> int:
    """k^nodes without borders; with one, the colourings without it less those in which both ends are one country."""
    if not edges:
        return k**nodes
    edge = min(edges, key=sorted)
    a, b = sorted(edge)
    rest = edges - {edge}
    joined = frozenset(frozenset(a if x == b else x for x in e) for e in rest)
    return coloured(rest, nodes, k) - coloured(joined, nodes - 1, k)


def pose(spec: Spec) -> dict[str, Any]:
    roads, k = spec
    nodes = len({x for a, b, _ in roads for x in (a, b)})
    return {
        "prompt": WORDINGS.write(pairs=write_pairs(roads), k=k),
        "answer": str(coloured(frozenset(frozenset((a, b)) for a, b, _ in roads), nodes, k)),
        "verifier": "number",
        "args": {"kind": "integer"},
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    pairs = read_pairs(fields["pairs"])
    names = sorted({x for pair in pairs for x in pair})
    near = {x: [b if x == a else a for a, b in pairs if x in (a, b)] for x in names}

    def painted(given: dict[str, int]) -> int:
        if len(given) == len(names):
            return 1
        x = names[len(given)]
        return sum(
            painted({**given, x: colour})
            for colour in range(int(fields["k"]))
            if all(given.get(other) != colour for other in near[x])
        )

    return str(painted({}))
