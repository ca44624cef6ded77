"""Where is a partner of a known rule after some steps, while you stay? Or what is where: which parcel is nearest to the partner?

Questions about what a partner will do, with an exact answer, in the corridor of the family errands (LLM-Coordination, Agashe et al.
2023, arXiv 2310.03903: its questions of theory of mind and of what is there). Certificate: the game played step by step, against whole walks from parcel
to parcel of what the text says. Difficulty axes: cells, parcels, steps."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, integers
from synth.types import Problem, Quarantined, Split
from synth.verify._corridor import SAID, moved

LADDER = (
    {"cells": 9, "parcels": 2, "steps": 2},
    {"cells": 12, "parcels": 3, "steps": 4},
    {"cells": 16, "parcels": 3, "steps": 6},
    {"cells": 20, "parcels": 4, "steps": 9},
)
CERTIFICATE = ("the game played step by step", "whole walks from parcel to parcel")
RULES = ("nearest", "lowest", "highest")
ASKS = ("moves", "there")
_THERE = "At which cell is the parcel that is nearest to your partner now, of two the lower?"
_AFTER = "At which cell is your partner after {} steps?"
WORDINGS = Wordings(
    "A corridor of {cells} cells. You stay at {you}, your partner is at {partner}, parcels are at {parcels}. Each step your partner moves one cell and collects what is there, until nothing is left. {rule}. {ask}",
    "{ask} In a corridor of {cells} cells you stay at {you}, your partner is at {partner}, parcels are at {parcels}. {rule}, one cell each step, and collects what is there, until nothing is left.",
    "Parcels are at {parcels} in a corridor of {cells} cells, you stay at {you}, and your partner is at {partner}. {rule}, one cell each step, and collects what is there, until nothing is left. {ask}",
    "Your partner is at {partner} in a corridor of {cells} cells, you stay at {you}, parcels are at {parcels}. Each step your partner moves one cell and collects what is there, until nothing is left. {rule}. {ask}",
    "{rule}, one cell each step, and collects what is there, until nothing is left. In this corridor of {cells} cells you stay at {you}, your partner is at {partner}, parcels are at {parcels}. {ask}",
    answer="Answer with one number.",
    parcels="[0-9 ]+",
    rule="Your partner goes [a-z, ]+?",
    ask=f"(?:{_AFTER.format('[0-9]+')[:-1]}|{_THERE[:-1]})[?]",
)
Spec = tuple[int, int, int, tuple[int, ...], str, int]  # the last: steps, 0 where it is asked what is there


def partner_moves(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    rules: Sequence[str] = RULES,
    asks: Sequence[str] = ("moves",),
) -> Problem | Quarantined:
    """Problem `index` of a split: the number of a cell. `levels` are the rungs of the ladder to draw from, `rules` the partners, `asks` the
    kinds of questions: moves (of the partner), there (what is where)."""
    if not asks or not set(asks) <= set(ASKS):
        raise ValueError(f"partner_moves: asks {list(asks)}: name some of {', '.join(ASKS)}")
    if not rules or not set(rules) <= set(RULES):
        raise ValueError(f"partner_moves: rules {list(rules)}: name some of {', '.join(RULES)}")

    def drawn(rng: Random, *, cells: int, parcels: int, steps: int) -> tuple[str, Spec]:
        ask = rng.choice(list(asks)) if len(asks) > 1 else asks[0]
        return draw(rng, cells=cells, parcels=parcels, steps=steps if ask == "moves" else 0, rules=rules)

    return item(
        seed,
        split,
        index,
        levels,
        family="partner_moves",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, cells: int, parcels: int, steps: int, rules: Sequence[str] = RULES) -> tuple[str, Spec]:
    you, partner, *places = rng.sample(range(1, cells + 1), parcels + 2)
    spec = (cells, you, partner, tuple(sorted(places)), rng.choice(list(rules)), steps)
    return f"{spec}", spec


def pose(spec: Spec) -> dict[str, Any]:
    cells, you, partner, parcels, rule, steps = spec
    now = (you, partner, parcels)
    for _ in range(steps):
        now = moved(now, rule, 0)
    ask = _AFTER.format(steps) if steps else _THERE
    answer = now[1] if steps else min(parcels, key=lambda x: (abs(x - partner), x))
    return {
        "prompt": WORDINGS.write(
            cells=cells, you=you, partner=partner, parcels=" ".join(map(str, parcels)), rule=SAID[rule], ask=ask
        ),
        "answer": str(answer),
        "verifier": "number",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    at, left, told = int(fields["partner"]), integers(fields["parcels"]), fields["rule"]
    if not (steps := integers(fields["ask"])):  # outwards from the partner, the lower side first
        ring = [x for d in range(int(fields["cells"])) for x in (at - d, at + d) if x in left]
        return str(ring[0])
    (time,) = steps
    while left and time:
        if told == SAID["nearest"]:
            aim = min(left, key=lambda x: (abs(x - at), x))
        elif told in (SAID["lowest"], SAID["highest"]):
            aim = (min if told == SAID["lowest"] else max)(left)
        else:
            raise Refused(f"roundtrip: no partner does {told!r}")
        walk = min(time, abs(aim - at))
        there = at + walk if aim > at else at - walk
        left = [x for x in left if not min(at, there) <= x <= max(at, there)]
        at, time = there, time - walk
    return str(at)
