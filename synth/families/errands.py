"""In how few steps do two collect all parcels of a corridor, when the partner's rule is known?

Questions about a game for two with an exact answer, and the game itself: env "corridor" has it played with that partner
(LLM-Coordination, Agashe et al. 2023, arXiv 2310.03903). Certificate: breadth-first search over where both are and what is left,
against values of all states that are improved until they stay, on what the text says. Difficulty axes: cells, parcels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split
from synth.verify._corridor import MOVES, SAID, Now, fewest, moved

LADDER = (
    {"cells": 9, "parcels": 2},
    {"cells": 12, "parcels": 3},
    {"cells": 14, "parcels": 3},
    {"cells": 16, "parcels": 4},
)
CERTIFICATE = ("breadth-first search", "values of all states, improved until they stay")
RULES = tuple(SAID)
STEP = "Each step both move one cell or stay, and what either stands on is collected."
WORDINGS = Wordings(
    f"A corridor of {{cells}} cells. You are at {{you}}, your partner at {{partner}}, parcels at {{parcels}}. {STEP} {{rule}}. In how few steps is all collected?",
    f"In a corridor of {{cells}} cells there are parcels at {{parcels}}. You are at {{you}}, your partner at {{partner}}. {{rule}}. {STEP} How many steps does it take at least to collect all?",
    f"How soon can two collect all that lies in a corridor of {{cells}} cells? You are at {{you}}, your partner at {{partner}}, parcels at {{parcels}}. {STEP} {{rule}}.",
    f"You are at {{you}} in a corridor of {{cells}} cells, your partner at {{partner}}, parcels at {{parcels}}. {{rule}}. {STEP} What is the fewest number of steps that collects all?",
    f"Two share a corridor of {{cells}} cells. You are at {{you}}, your partner at {{partner}}, parcels at {{parcels}}. {STEP} {{rule}}. After how few steps is nothing left?",
    answer="Answer with one number.",
    parcels="[0-9 ]+",
    rule="Your partner [a-z, ]+",
)
Spec = tuple[int, int, int, tuple[int, ...], str]


def errands(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    rules: Sequence[str] = ("nearest", "lowest", "highest", "still"),
    env: str = "single",
) -> Problem | Quarantined:
    """Problem `index` of a split: a number of steps. `levels` are the rungs of the ladder to draw from, `rules` the partners;
    env "corridor" has it played in turns (training/env/corridor.py), with the best ones as its demonstration."""
    if not rules or not set(rules) <= set(RULES):
        raise ValueError(f"errands: rules {list(rules)}: name some of {', '.join(RULES)}")

    def drawn(rng: Random, *, cells: int, parcels: int) -> tuple[str, Spec]:
        return draw(rng, cells=cells, parcels=parcels, rules=rules)

    problem = item(
        seed,
        split,
        index,
        levels,
        family="errands",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )
    if not isinstance(problem, Problem) or env != "corridor":
        return problem
    told = WORDINGS.read(problem.question)
    rule = next(name for name, words in SAID.items() if words == told["rule"])
    parcels = tuple(int(x) for x in told["parcels"].split())
    turns = shortest(int(told["cells"]), (int(told["you"]), int(told["partner"]), parcels), rule)
    return replace(problem, lineage={**problem.lineage, "demonstration": turns})


def draw(rng: Random, *, cells: int, parcels: int, rules: Sequence[str] = RULES) -> tuple[str, Spec]:
    rule = rng.choice(list(rules))
    you, partner, *places = rng.sample(range(1, cells + 1), parcels + 2)
    spec = (cells, you, partner, tuple(sorted(places)), rule)
    return f"{spec}", spec


def shortest(cells: int, now: Now, rule: str) -> list[str]:
    """Turns in which the two need the fewest steps; of equals the first of left, stay, right."""
    turns = []
    while now[2]:
        legal = {name: moved(now, rule, m) for name, m in MOVES.items() if 1 <= now[0] + m <= cells}
        name = min(legal, key=lambda x: fewest(cells, legal[x], rule))
        turns.append(f"<move>{name}</move>")
        now = legal[name]
    return turns


def pose(spec: Spec) -> dict[str, Any]:
    cells, you, partner, parcels, rule = spec
    return {
        "prompt": WORDINGS.write(
            cells=cells, you=you, partner=partner, parcels=" ".join(map(str, parcels)), rule=SAID[rule]
        ),
        "answer": str(fewest(cells, (you, partner, parcels), rule)),
        "verifier": "number",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    n, parcels = int(fields["cells"]), [int(x) for x in fields["parcels"].split()]
    goes: Callable[[int, list[int]], int] = {
        SAID["nearest"]: lambda at, left: sorted(left, key=lambda x: (abs(x - at), x))[0],
        SAID["lowest"]: lambda at, left: left[0],
        SAID["highest"]: lambda at, left: left[-1],
        SAID["still"]: lambda at, left: at,
    }.get(fields["rule"]) or _unknown(fields["rule"])
    left_of = [[x for k, x in enumerate(parcels) if m >> k & 1] for m in range(2 ** len(parcels))]
    mask = lambda m, a, b: m & ~sum(1 << k for k, x in enumerate(parcels) if x in (a, b))
    follow = {}
    for m in range(1, len(left_of)):
        for b in range(1, n + 1):
            aim = goes(b, left_of[m])
            there = b + (aim > b) - (aim < b)
            for a in range(1, n + 1):
                follow[a, b, m] = [(x, there, mask(m, x, there)) for x in (a - 1, a, a + 1) if 1 <= x <= n]
    worst = 10 * n
    values = {
        (a, b, m): worst if m else 0 for m in range(len(left_of)) for a in range(1, n + 1) for b in range(1, n + 1)
    }
    while True:
        better = {s: v for s, to in follow.items() if (v := 1 + min(values[x] for x in to)) < values[s]}
        if not better:
            break
        values |= better
    fewest = values[int(fields["you"]), int(fields["partner"]), len(left_of) - 1]
    if fewest >= worst:
        raise Refused("impossible: not all is ever collected")
    return str(fewest)


def _unknown(told: str) -> Any:
    raise Refused(f"roundtrip: no partner does {told!r}")
