"""Houses in a row, each with a person, a pet and a drink: clues leave exactly one arrangement, and every clue is
needed.

Certificate: all arrangements are enumerated once, a clue is the set (bits of an integer) of those that satisfy it,
clues are added until one is left and dropped while one is left; from the text a search places value after value, gives
up where a clue fails, and counts all solutions. Difficulty axes: houses, kinds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"houses": 3, "kinds": 2}, {"houses": 3, "kinds": 3}, {"houses": 4, "kinds": 2}, {"houses": 5, "kinds": 2})
CERTIFICATE = ("all arrangements, intersected by clue", "search over the text, all solutions counted")
VALUES = {
    "person": ("Ann", "Bob", "Cid", "Dot", "Eli", "Fay", "Gus", "Hal"),
    "pet": ("cat", "dog", "fish", "bird", "horse", "mouse", "snail", "zebra"),
    "drink": ("tea", "milk", "water", "juice", "coffee", "cocoa", "beer", "soda"),
}
KINDS = {
    "same": "{0} and {1} are in one house",
    "left": "{0} is directly left of {1}",
    "next": "{0} is next to {1}",
    "before": "{0} is somewhere left of {1}",
    "at": "{0} is in house {1}",
    "not": "{0} is not in house {1}",
}
WORDINGS = Wordings(
    "{n} houses in a row, one of each in every house: {groups}. {clues}. List the {wanted} from left to right.",
    "In each of {n} houses in a row is one of each: {groups}. Clues: {clues}. In which order do the {wanted} come?",
    "{n} houses stand side by side. Each has one of each: {groups}. {clues}. What is the order of the {wanted}?",
    "A street of {n} houses has one of each in every house: {groups}. {clues}. Name its {wanted} from left to right.",
    "One of each in every one of {n} houses: {groups}. Hints: {clues}. Write down the {wanted} of the row.",
    answer="Answer from left (house 1) to right, parted by spaces.",
    n=r"\d",
    groups=r"[\w ;]+",
    clues=r"[\w ;]+",
    wanted="persons|pets|drinks",
)
_PATTERNS = [(kind, re.compile(text.replace("{0}", r"(\w+)").replace("{1}", r"(\w+)"))) for kind, text in KINDS.items()]
Clue = tuple[str, int, int]  # (kind, value, value or house), values numbered kind by kind


def zebra_puzzles(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the values of the last kind from left to right. `levels` are the rungs of the ladder
    to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="zebra_puzzles",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


@cache
def table(houses: int, kinds: int) -> tuple[list[tuple[int, ...]], dict[Clue, int]]:
    """Every arrangement as the house of each value, and every clue as the set of arrangements that satisfy it."""
    worlds = [sum(rows, ()) for rows in product(permutations(range(houses)), repeat=kinds)]
    n = houses * kinds
    clues: dict[Clue, int] = {}

    def add(clue: Clue, holds) -> None:
        clues[clue] = int("".join("1" if holds(w) else "0" for w in reversed(worlds)), 2)

    for a in range(n):
        for house in range(houses):
            add(("at", a, house), lambda w, a=a, h=house: w[a] == h)
            add(("not", a, house), lambda w, a=a, h=house: w[a] != h)
        for b in range(n):
            if a // houses != b // houses and a < b:
                add(("same", a, b), lambda w, a=a, b=b: w[a] == w[b])
            if a != b:
                add(("left", a, b), lambda w, a=a, b=b: w[a] + 1 == w[b])
                add(("before", a, b), lambda w, a=a, b=b: w[a] < w[b])
                if a < b:
                    add(("next", a, b), lambda w, a=a, b=b: abs(w[a] - w[b]) == 1)
    return worlds, clues


def draw(rng: Random, *, houses: int, kinds: int) -> tuple[str, tuple]:
    worlds, clues = table(houses, kinds)
    hidden = rng.randrange(len(worlds))
    left, chosen = (1 << len(worlds)) - 1, []
    names = tuple(clues)
    while left != 1 << hidden:
        clue = rng.choice(names)
        if clues[clue] >> hidden & 1 and left & ~clues[clue] and (clue[0] != "at" or rng.random() < 0.3):
            left &= clues[clue]
            chosen.append(clue)
    for clue in list(chosen):  # drop what the others say
        rest = (1 << len(worlds)) - 1
        for other in chosen:
            if other != clue:
                rest &= clues[other]
        if rest == 1 << hidden:
            chosen.remove(clue)
    words = [w for kind in list(VALUES)[:kinds] for w in rng.sample(VALUES[kind], houses)]
    return f"{words} {sorted(chosen)}", (houses, words, chosen, worlds[hidden])


def pose(spec: tuple) -> dict[str, Any]:
    houses, words, clues, world = spec
    text = "; ".join(KINDS[k].format(words[a], b + 1 if k in ("at", "not") else words[b]) for k, a, b in clues)
    groups = [words[i : i + houses] for i in range(0, len(words), houses)]
    last = sorted(range(len(words) - houses, len(words)), key=lambda v: world[v])
    together = "; ".join(" ".join(sorted(g)) for g in groups)
    return {
        "prompt": WORDINGS.write(n=houses, groups=together, clues=text, wanted=f"{list(VALUES)[len(groups) - 1]}s"),
        "answer": " ".join(words[v] for v in last),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    houses = int(read["n"])
    kind_of = {w: k for k, group in enumerate(read["groups"].split("; ")) for w in group.split()}
    wanted = set(VALUES[read["wanted"].removesuffix("s")]) & kind_of.keys()
    clues = []
    for text in read["clues"].split("; "):
        match = next(((kind, *m.groups()) for kind, p in _PATTERNS if (m := p.fullmatch(text))), None)
        if match is None:
            raise Refused(f"roundtrip: {text!r} is no clue")
        clues.append(match)
    names, at, solutions = list(kind_of), {}, []

    def fails(clue: tuple[str, str, str]) -> bool:
        kind, a, b = clue
        if a not in at or (b not in at and not b.isdigit()):
            return False
        if b.isdigit():
            return (at[a] == int(b)) != (kind == "at")
        step = at[b] - at[a]
        return not {"same": step == 0, "left": step == 1, "next": step in (1, -1), "before": step > 0}[kind]

    def search(i: int) -> None:
        if i == len(names):
            solutions.append(dict(at))
            return
        for house in range(1, houses + 1):
            if all(at[w] != house or kind_of[w] != kind_of[names[i]] for w in names[:i]):
                at[names[i]] = house
                if not any(fails(c) for c in clues if names[i] in c):
                    search(i + 1)
                del at[names[i]]

    search(0)
    if len(solutions) != 1:
        raise Refused(f"{'not_unique' if solutions else 'impossible'}: {len(solutions)} arrangements")
    return " ".join(sorted(wanted, key=lambda w: solutions[0][w]))
