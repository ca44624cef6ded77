"""The resistance of resistors in series and in parallel.

Certificate: rules for series and parallel on the drawn tree against Kirchhoff's law at every node of the text's
circuit. Difficulty axes: resistors, size of the resistances.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"resistors": 2, "size": 9},
    {"resistors": 3, "size": 12},
    {"resistors": 5, "size": 12},
    {"resistors": 7, "size": 20},
)
CERTIFICATE = ("rules for series and parallel", "Kirchhoff's law at every node")
WORDINGS = Wordings(
    "What is the total resistance in ohms of {circuit}, where + joins in series and | in parallel?",
    "Resistors (in ohms) are wired as {circuit}; + means in series, | means in parallel. Find the resistance of the whole.",
    "Compute the equivalent resistance of {circuit}, with resistances in ohms, + for series and | for parallel connection.",
    "In {circuit} the numbers are resistances in ohms, A + B is A in series with B, A | B is A parallel to B. Which single resistor has the same effect?",
    "A circuit is written {circuit}: numbers are ohms, + stands for series, | for parallel. What resistance does a battery see?",
    answer="Answer with the exact number of ohms, an integer or a fraction such as 20/3.",
    circuit=r"[\d+|() ]+",
)
Tree = int | tuple
Spec = Tree


def resistor_networks(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="resistor_networks",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, resistors: int, size: int) -> tuple[str, Spec]:
    def grow(n: int) -> Tree:
        if n == 1:
            return rng.randint(1, size)
        left = rng.randint(1, n - 1)
        return (rng.choice("+|"), grow(left), grow(n - left))

    while True:
        tree = grow(resistors)
        text = write(tree)
        if "|" in text and (resistors < 3 or "+" in text):
            return text, tree


def write(tree: Tree) -> str:
    if not isinstance(tree, tuple):
        return str(tree)
    return f" {tree[0]} ".join(f"({write(t)})" if isinstance(t, tuple) else write(t) for t in tree[1:])


def resistance(tree: Tree) -> Fraction:
    if not isinstance(tree, tuple):
        return Fraction(tree)
    a, b = resistance(tree[1]), resistance(tree[2])
    return a + b if tree[0] == "+" else a * b / (a + b)


def pose(spec: Spec) -> dict[str, Any]:
    return {"prompt": WORDINGS.write(circuit=write(spec)), "answer": str(resistance(spec)), "verifier": "number"}


def solve(question: str) -> str:
    tokens = re.findall(r"\d+|[+|()]", WORDINGS.read(question)["circuit"])
    wires: list[tuple[int, int, int]] = []  # node, node, ohms
    nodes = 2

    def part(at: int, a: int, b: int) -> int:
        """Lay the part that begins at a token between two nodes; the token behind it."""
        if tokens[at] != "(":
            wires.append((a, b, int(tokens[at])))
            return at + 1
        return both(at + 1, a, b) + 1

    def ends(at: int) -> int:
        """The token behind the part that begins at one."""
        depth = 0
        while True:
            depth += (tokens[at] == "(") - (tokens[at] == ")")
            at += 1
            if depth == 0:
                return at

    def both(at: int, a: int, b: int) -> int:
        nonlocal nodes
        sign, middle = tokens[ends(at)], nodes
        nodes += sign == "+"
        at = part(at, a, middle if sign == "+" else b)
        return part(at + 1, middle if sign == "+" else a, b)

    both(0, 0, 1)
    inner = list(range(2, nodes))  # one volt at node 0, none at node 1; currents at every other node add up to nothing
    rows = []
    for k in inner:
        row = {j: Fraction(0) for j in (*inner, 0)}
        for a, b, ohms in wires:
            if k in (a, b):
                other = b if k == a else a
                row[k] += Fraction(1, ohms)
                if other != 1:
                    row[other] -= Fraction(1, ohms)
        rows.append(row)
    volts = {0: Fraction(1), 1: Fraction(0)}
    for i, k in enumerate(inner):
        pivot = rows[i]
        for row in rows[i + 1 :]:
            share = row[k] / pivot[k]
            for j in row:
                row[j] -= share * pivot[j]
    for i in reversed(range(len(inner))):
        k = inner[i]
        volts[k] = -sum((rows[i][j] * volts[j] for j in (*inner[i + 1 :], 0)), Fraction(0)) / rows[i][k]
    current = sum((volts[a] - volts[b]) * (1 if a == 0 else -1) / ohms for a, b, ohms in wires if 0 in (a, b))
    return str(1 / Fraction(current))
