"""A question of two steps over sentences that are told out of order: whose friend is who, and where each lives.

Made for readers who see a few sentences at a time (training/env/reader.py). Certificate: the chain as it was drawn against the
two sentences of the text that state it. Difficulty axis: people (two sentences each).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import NAMES
from synth.types import Problem, Quarantined, Split
from synth.verify._scattered import evidence

LADDER = ({"people": 3}, {"people": 5}, {"people": 8}, {"people": 12})
CERTIFICATE = ("the drawn chain", "the two sentences of the text that state it")
PLACES = "Arbon Brenn Calder Dorla Esk Farin Gorse Hallow Imber Jarrow Kells Lorne Murn Nesso Orlan Pell".split()
Spec = tuple[list[str], str, str]  # sentences, who is asked about, where the friend lives


def scattered_facts(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: a place. `levels` are the levels to draw from; env "reader" shows a few sentences at a time."""
    return item(
        seed,
        split,
        index,
        levels,
        family="scattered_facts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, people: int) -> tuple[str, Spec]:
    names, places = rng.sample(NAMES, people), rng.sample(PLACES, people)
    friends = [names[(i + 1) % people] for i in range(people)]  # in a ring, so that nobody is a friend of two
    told = [f"The friend of {a} is {b}" for a, b in zip(names, friends, strict=True)]
    told += [f"{a} lives in {p}" for a, p in zip(names, places, strict=True)]
    rng.shuffle(told)
    who = rng.randrange(people)
    return f"{sorted(told)} {names[who]}", (told, names[who], places[(who + 1) % people])


def pose(spec: Spec) -> dict[str, Any]:
    told, who, place = spec
    return {
        "prompt": f"{' '.join(f'{x}.' for x in told)} Where does the friend of {who} live?",
        "answer": place,
        "verifier": "exact",
    }


def solve(question: str) -> str:
    try:
        return evidence(question)[1][1]
    except ValueError as e:
        raise Refused(str(e)) from e
