"""The order of a race from clues about places.

Certificate: the drawn order, which the clues leave alone among all, against a search place by place over the text.
Difficulty axes: runners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import NAMES, Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = ({"runners": 3}, {"runners": 4}, {"runners": 5}, {"runners": 6})
CERTIFICATE = ("clues that leave one of all orders", "a search place by place over the text")
RUNNERS = NAMES[:12]
WORDINGS = Wordings(
    "{names} ran a race. {clues}. In which order did they finish?",
    "Runners: {names}. {clues}. Give the order of the finish.",
    "In a race between {names} there was no tie. {clues}. Who came in, from first to last?",
    "Find the result of a race of {names}. {clues}.",
    "{clues}. The runners were {names}, and no two were equally fast. What was the result?",
    answer="Answer with the names from first to last, parted by spaces.",
    names="[A-Za-z, ]+",
    clues=r"[A-Z][a-z]+ (?:finished|did not finish) [a-z\d ]+(?:[A-Z][a-z]+)?(?:\. [A-Z][a-z]+ (?:finished|did not finish) [a-z\d ]+(?:[A-Z][a-z]+)?)*",
)
Spec = tuple[list[str], list[str], Sequence[str]]


def race_orders(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: names in an order. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="race_orders",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, runners: int) -> tuple[str, Spec]:
    order = rng.sample(RUNNERS, runners)
    at = {name: i for i, name in enumerate(order)}
    told: list[tuple[str, Callable]] = []  # a clue and what it leaves
    for a, b in permutations(order, 2):
        if at[a] + 1 == at[b]:
            told.append((f"{a} finished directly before {b}", lambda p, a=a, b=b: p.index(a) + 1 == p.index(b)))
        if at[a] < at[b]:
            told += [(f"{a} finished somewhere before {b}", lambda p, a=a, b=b: p.index(a) < p.index(b))] * 2
        if at[a] > at[b] + 1:
            told.append(
                (f"{a} finished later but not directly after {b}", lambda p, a=a, b=b: p.index(a) > p.index(b) + 1)
            )
    for a in order:
        other = rng.choice([k for k in range(runners) if k != at[a]])
        told.append((f"{a} did not finish in place {other + 1}", lambda p, a=a, k=other: p[k] != a))
    told.append((f"{order[0]} finished in place 1", lambda p: p[0] == order[0]))
    rng.shuffle(told)
    left, clues = list(permutations(order)), []
    for clue, fits in told:
        after = [p for p in left if fits(p)]
        if len(after) < len(left):
            left, clues = after, [*clues, clue]
    return f"{order} {sorted(clues)}", (sorted(order), clues, order)


def pose(spec: Spec) -> dict[str, Any]:
    names, clues, order = spec
    return {
        "prompt": WORDINGS.write(names=listed(names), clues=". ".join(clues)),
        "answer": " ".join(order),
        "verifier": "ordered_list",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    names = fields["names"].replace(" and ", ", ").split(", ")
    clues = [clue.split() for clue in fields["clues"].split(". ")]
    solutions: list[str] = []

    def fits(place: dict[str, int]) -> bool:
        for a, _, *words, last in clues:
            if a not in place or (last not in place and not last.isdigit()):
                continue
            gap = place.get(last, 0) - place[a]
            holds = {
                "directly": gap == 1,
                "somewhere": gap > 0,
                "later": gap < -1,
                "in": last.isdigit() and place[a] == int(last),
                "not": last.isdigit() and place[a] != int(last),
            }[words[0]]
            if not holds:
                return False
        return True

    def run(place: dict[str, int]) -> None:
        if len(place) == len(names):
            solutions.append(" ".join(place))
        for name in names:
            if name not in place and fits(now := {**place, name: len(place) + 1}):
                run(now)

    run({})
    if len(solutions) != 1:
        raise Refused(f"{'not_unique' if solutions else 'impossible'}: {len(solutions)} orders fit")
    return solutions[0]
