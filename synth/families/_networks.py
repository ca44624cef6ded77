"""Networks of places and roads: drawn, written as "A-B 5, B-C 2", and read back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

Edge = tuple[str, str, int]
NAMES = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # no letter that looks like a digit
ROADS = r"[A-Z]-[A-Z] \d+(?:, [A-Z]-[A-Z] \d+)*"
PAIRS = r"[A-Z]-[A-Z](?:, [A-Z]-[A-Z])*"


def draw_network(rng: Random, nodes: int, edges: int, cost: int) -> tuple[list[str], list[Edge]]:
    """Places, and roads between them that make one network, no two between the same places."""
    names = rng.sample(NAMES, nodes)
    pairs = {
        tuple(sorted((names[i], rng.choice(names[:i])))) for i in range(1, nodes)
    }  # a tree, so that every place can be reached
    while len(pairs) < edges:
        pairs.add(tuple(sorted(rng.sample(names, 2))))
    return names, [(a, b, rng.randint(1, cost)) for a, b in sorted(pairs)]


def write_network(edges: Iterable[Edge]) -> str:
    return ", ".join(f"{a}-{b} {cost}" for a, b, cost in edges)


def read_network(text: str) -> list[Edge]:
    return [(a, b, int(cost)) for a, b, cost in re.findall(r"([A-Z])-([A-Z]) (\d+)", text)]


def write_pairs(edges: Iterable[Edge]) -> str:
    return ", ".join(f"{a}-{b}" for a, b, _ in edges)


def read_pairs(text: str) -> list[tuple[str, str]]:
    return re.findall(r"([A-Z])-([A-Z])", text)
