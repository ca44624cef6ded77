"""Pairs of two groups that nobody wants to leave.

Certificate: proposals and refusals on the values against all matchings of the text. Difficulty axes: persons of a
group.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"persons": 3}, {"persons": 4}, {"persons": 5}, {"persons": 6})
CERTIFICATE = ("proposals and refusals", "all matchings of the text")
WORDINGS = Wordings(
    "Pupils rank schools, best first: {left}. Schools rank pupils: {right}. Which schools do pupils {names} get in the stable matching that is best for the pupils?",
    "Preferences, best first, of one side: {left}; of the other side: {right}. In the stable matching that the first side likes best, who are the partners of {names}?",
    "{left} propose to the others in the order of these lists; the others rank them {right} and keep the best proposal so far (Gale and Shapley). Whom do {names} end up with?",
    "Each line ranks the other side, best first. Proposers: {left}. Receivers: {right}. Run deferred acceptance. Who is matched with {names}?",
    "Workers: {left}. Firms: {right}. Everyone lists the other side from best to worst. Name the firms of workers {names} in the worker-optimal stable matching.",
    answer="Answer with the partners, in the order of the letters asked for, parted by spaces.",
    left=r"[A-F] [u-z]+(?:, [A-F] [u-z]+)*",
    right=r"[u-z] [A-F]+(?:, [u-z] [A-F]+)*",
    names=r"[A-F](?:, [A-F])* and [A-F]",
)
Spec = tuple[dict[str, str], dict[str, str]]


def stable_matchings(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: names in an order. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="stable_matchings",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, persons: int) -> tuple[str, Spec]:
    left, right = "ABCDEF"[:persons], "uvwxyz"[:persons]
    shuffled = lambda text: "".join(rng.sample(text, len(text)))  # noqa: E731
    spec = ({a: shuffled(right) for a in left}, {b: shuffled(left) for b in right})
    return f"{spec}", spec


def pose(spec: Spec) -> dict[str, Any]:
    left, right = spec
    held: dict[str, str] = {}  # who of the right holds whom
    proposals = dict.fromkeys(left, 0)
    free = list(left)
    while free:
        a = free.pop()
        b = left[a][proposals[a]]
        proposals[a] += 1
        if b not in held:
            held[b] = a
        elif right[b].index(a) < right[b].index(held[b]):
            free.append(held[b])
            held[b] = a
        else:
            free.append(a)
    partner = {a: b for b, a in held.items()}
    write = lambda lists: ", ".join(f"{name} {ranks}" for name, ranks in lists.items())  # noqa: E731
    return {
        "prompt": WORDINGS.write(left=write(left), right=write(right), names=listed(list(left))),
        "answer": " ".join(partner[a] for a in left),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    left, right = (dict(re.findall(r"(\w) (\w+)", fields[side])) for side in ("left", "right"))
    best: tuple[int, tuple[str, ...]] | None = None
    for order in permutations(right):
        pairs = dict(zip(left, order, strict=True))
        at = {b: a for a, b in pairs.items()}
        leave = any(
            left[a].index(b) < left[a].index(pairs[a]) and right[b].index(a) < right[b].index(at[b])
            for a in left
            for b in right
        )
        rank = sum(left[a].index(b) for a, b in pairs.items())
        if not leave and (best is None or rank < best[0]):
            best = (rank, order)
    if best is None:
        raise Refused("impossible: no matching is stable")
    return " ".join(best[1])
