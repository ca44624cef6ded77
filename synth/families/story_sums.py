"""A story about how much each person has, told out of order, with facts that do not matter.

Certificate: amounts along the drawn chain against facts of the text used whenever one tells something new.
Difficulty axes: persons, facts that do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import NAMES, Wordings, listed
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"persons": 2, "others": 1},
    {"persons": 3, "others": 2},
    {"persons": 5, "others": 3},
    {"persons": 7, "others": 5},
)
CERTIFICATE = ("amounts along the chain", "facts of the text used whenever they tell something")
THINGS = ("apples", "stamps", "marbles", "books", "coins", "shells", "cards", "pens")
WORDINGS = Wordings(
    "{facts}. How many {thing} do {who} have together?",
    "{facts}. What is the total number of {thing} that {who} have?",
    "Here is what we know. {facts}. Find how many {thing} {who} have in all.",
    "{facts}. {who} put all their {thing} on one table. What is the number of {thing} on it?",
    "Read carefully. {facts}. If {who} count their {thing} together, which number do they get?",
    answer="Answer with one integer.",
    facts=r"[A-Z][A-Za-z\d. ]+?",
    thing="[a-z]+",
    who="[A-Z][a-z]+(?:, [A-Z][a-z]+)* and [A-Z][a-z]+",
)
Spec = tuple[str, list[str], dict[str, int], Sequence[str], list[str]]


def story_sums(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an integer. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="story_sums",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, persons: int, others: int) -> tuple[str, Spec]:
    names, (thing, other) = rng.sample(NAMES, persons + others), rng.sample(THINGS, 2)
    chain, beside = names[:persons], names[persons:]
    amounts, facts, used = {chain[0]: rng.randint(3, 20)}, [], []
    facts.append(f"{chain[0]} has {amounts[chain[0]]} {thing}")
    for name, before in zip(chain[1:], chain, strict=False):
        have, kind, k = amounts[before], rng.choice(("more", "fewer", "times", "half")), rng.randint(2, 9)
        if kind == "fewer" and have > k:
            amounts[name] = have - k
            facts.append(f"{name} has {k} fewer {thing} than {before}")
        elif kind == "times" and have < 60:
            amounts[name] = have * (k % 3 + 2)
            facts.append(f"{name} has {k % 3 + 2} times as many {thing} as {before}")
        elif kind == "half" and have % 2 == 0:
            amounts[name] = have // 2
            facts.append(f"{name} has half as many {thing} as {before}")
        else:
            amounts[name] = have + k
            facts.append(f"{name} has {k} more {thing} than {before}")
        used.append(kind)
    for name in beside:
        facts.append(
            rng.choice(
                (
                    f"{name} has {rng.randint(2, 40)} {other}",
                    f"{name} is {rng.randint(8, 70)} years old",
                    f"{rng.choice(chain)} has {rng.randint(2, 40)} more {other} than {name}",
                )
            )
        )
    wanted = sorted(rng.sample(chain[:-1], max(1, (persons - 1) // 2))) + chain[-1:]
    form = f"{sorted(facts)} {wanted}"
    rng.shuffle(facts)
    return form, (thing, facts, amounts, wanted, used)


def pose(spec: Spec) -> dict[str, Any]:
    thing, facts, amounts, wanted, _ = spec
    return {
        "prompt": WORDINGS.write(facts=". ".join(facts), thing=thing, who=listed(wanted)),
        "answer": str(sum(amounts[name] for name in wanted)),
        "verifier": "number",
        "args": {"kind": "integer"},
        "working": ", ".join(f"{name} has {n}" for name, n in amounts.items()),
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    thing, known = fields["thing"], dict[str, int]()
    facts = [fact for fact in fields["facts"].split(". ") if f" {thing}" in fact]
    for _ in facts:
        for fact in facts:
            if match := re.fullmatch(rf"(\w+) has (\d+) {thing}", fact):
                known[match[1]] = int(match[2])
            elif (match := re.fullmatch(rf"(\w+) has (\d+) (more|fewer) {thing} than (\w+)", fact)) and match[
                4
            ] in known:
                known[match[1]] = known[match[4]] + int(match[2]) * (1 if match[3] == "more" else -1)
            elif (match := re.fullmatch(rf"(\w+) has (half|\d+ times) as many {thing} as (\w+)", fact)) and match[
                3
            ] in known:
                known[match[1]] = (
                    known[match[3]] // 2 if match[2] == "half" else known[match[3]] * int(match[2].split()[0])
                )
    names = fields["who"].replace(" and ", ", ").split(", ")
    if not set(names) <= set(known):
        raise Refused("impossible: the facts do not tell what everybody has")
    return str(sum(known[name] for name in names))
