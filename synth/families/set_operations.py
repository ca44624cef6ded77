"""Unions, intersections and differences of small sets.

Certificate: Python's sets on the drawn tree against a question for each number, asked of the text. Difficulty axes:
sets, elements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"sets": 2, "elements": 4},
    {"sets": 3, "elements": 5},
    {"sets": 4, "elements": 6},
    {"sets": 5, "elements": 8},
)
CERTIFICATE = ("sets on the tree", "a question for each number of the text")
WORDINGS = Wordings(
    "Given {sets}, which numbers are in {term}?",
    "Let {sets}. List the elements of {term}.",
    "Sets: {sets}. Find {term}.",
    "For the sets {sets}, determine {term}.",
    "Suppose that {sets}. What is {term}?",
    answer="Here ∪ is union, ∩ intersection and \\ difference. Answer with the numbers, parted by spaces.",
    sets=r"[A-E] = \{[\d, ]+\}(?:, [A-E] = \{[\d, ]+\})+",
    term=r"[A-E∪∩\\() ]+",
)
Tree = str | tuple
Spec = tuple[dict[str, list[int]], Tree]
SIGNS = "∪∩\\"


def set_operations(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the elements of a set. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="set_operations",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, sets: int, elements: int) -> tuple[str, Spec]:
    while True:
        names = "ABCDE"[:sets]
        values = {n: sorted(rng.sample(range(1, 3 * elements), elements)) for n in names}
        terms: list[Tree] = list(names)
        while len(terms) > 1:
            i = rng.randrange(len(terms) - 1)
            terms[i : i + 2] = [(rng.choice(SIGNS), terms[i], terms[i + 1])]
        if evaluated(terms[0], values):
            return f"{values} {terms[0]}", (values, terms[0])


def evaluated(tree: Tree, values: dict[str, list[int]]) -> set[int]:
    if isinstance(tree, str):
        return set(values[tree])
    a, b = evaluated(tree[1], values), evaluated(tree[2], values)
    return a | b if tree[0] == "∪" else a & b if tree[0] == "∩" else a - b


def write(tree: Tree) -> str:
    return tree if isinstance(tree, str) else f"({write(tree[1])} {tree[0]} {write(tree[2])})"


def pose(spec: Spec) -> dict[str, Any]:
    values, tree = spec
    told = ", ".join(f"{n} = {{{', '.join(map(str, xs))}}}" for n, xs in values.items())
    return {
        "prompt": WORDINGS.write(sets=told, term=write(tree)[1:-1]),
        "answer": " ".join(map(str, sorted(evaluated(tree, values)))),
        "verifier": "item_set",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    held = {n: integers(xs) for n, xs in re.findall(r"([A-E]) = \{([\d, ]+)\}", fields["sets"])}
    fits = []
    for x in sorted({x for xs in held.values() for x in xs}):
        text = re.sub("[A-E]", lambda m, x=x: str(int(x in held[m[0]])), f"({fields['term']})")
        while len(text) > 1:  # the innermost parentheses first
            text = re.sub(
                r"\((\d) (.) (\d)\)",
                lambda m: {"∪": max, "∩": min, "\\": lambda a, b: a if b == "0" else "0"}[m[2]](m[1], m[3]),
                text,
            )
        if text == "1":
            fits.append(str(x))
    return " ".join(fits)
