"""A question of two steps over sentences that are told out of order: whose friend is who, and where each lives.

Made for readers who see a few sentences at a time (training/env/reader.py). Certificate: the chain as it was drawn against the
two sentences of the text that state it. Difficulty axis: people (two sentences each).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import NAMES
from synth.types import Problem, Quarantined, Split

LADDER = ({"people": 3}, {"people": 5}, {"people": 8}, {"people": 12})
CERTIFICATE = ("the drawn chain", "the two sentences of the text that state it")
PLACES = "Arbon Brenn Calder Dorla Esk Farin Gorse Hallow Imber Jarrow Kells Lorne Murn Nesso Orlan Pell".split()
_TEXT = re.compile(r"((?:[A-Z][^.?]+\. )+)Where does the friend of ([A-Z][a-z]+) live\?")
_FRIEND = re.compile(r"The friend of (\w+) is (\w+)")
_HOME = re.compile(r"(\w+) lives in (\w+)")
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


def told(question: str) -> tuple[list[str], str]:
    """The sentences of a problem, in their order, and what it asks. Raises Refused for another text."""
    if not (match := _TEXT.fullmatch(question)):
        raise Refused(f"roundtrip: {question[:80]!r} asks nothing over sentences")
    return match[1].strip().removesuffix(".").split(". "), question[match.end(1) :]


def evidence(question: str) -> list[tuple[str, str]]:
    """The two facts that answer it, as the names that each joins. Raises Refused where the text does not state them once."""
    sentences, asked = told(question)
    who = asked.split()[-2]
    friends = [m[2] for s in sentences if (m := _FRIEND.fullmatch(s)) and m[1] == who]
    homes = [m[2] for s in sentences if (m := _HOME.fullmatch(s)) and friends and m[1] == friends[0]]
    if len(friends) != 1 or len(homes) != 1:
        raise Refused(f"not_unique: {len(friends)} friends of {who} and {len(homes)} homes are told")
    return [(who, friends[0]), (friends[0], homes[0])]


def solve(question: str) -> str:
    return evidence(question)[1][1]
