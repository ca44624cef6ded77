"""Where a chain of relations leads, among facts in the prompt: a small graph to be explored in context, with facts that
do not matter.

After SIE, "Learning to Reason in Structured In-context Environments with Reinforcement Learning", 2025 (arXiv
2509.23330): a path is sampled from a graph, the question asks for its end, supporting and distracting facts stand in
the prompt, and the check is a rule. A partial environment states some supporting facts from the other side only ("Do is
the guide of Ba" for "The guide of Ba is Do"), so that the fact that is missing must be inferred; hiding facts that
nothing implies would leave no answer to prove.

Certificate: the path as it was drawn against a walk over the facts of the text. Difficulty axes: hops, distractors,
inverted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"hops": 1, "distractors": 4, "inverted": 0},
    {"hops": 2, "distractors": 8, "inverted": 0},
    {"hops": 2, "distractors": 8, "inverted": 1},
    {"hops": 3, "distractors": 14, "inverted": 1},
    {"hops": 4, "distractors": 16, "inverted": 2},
)
CERTIFICATE = ("the path as it was drawn", "a walk over the facts of the text")
RELATIONS = ("guide", "friend", "rival", "heir", "patron", "tutor", "host", "scribe")
NAMES = [
    a + b
    for a in ("Ba", "Do", "Fe", "Gi", "Ka", "Lu", "Mo", "Ne", "Pi", "Ro")
    for b in ("ban", "del", "fin", "gor", "las", "mar", "nor", "tis")
]
_TOLD = r"(?:the \w+ of \w+ is \w+|\w+ is the \w+ of \w+)"
WORDINGS = Wordings(
    "Facts: {facts}. Begin with {start} and go to its {way}. Where do you end?",
    "It is known: {facts}. Start at {start} and go to its {way}. Whom do you reach?",
    "A village knows this: {facts}. A letter is passed on from {start} to its {way}. Who gets it in the end?",
    "From {start} you go to its {way}. Where does that lead, if the facts are these: {facts}?",
    "Who comes last if you begin with {start} and go to its {way}? You may use: {facts}.",
    answer="Answer with one name.",
    facts=f"{_TOLD}(?:; {_TOLD})*",
    start=r"\w+",
    way=r"\w+(?: then its \w+)*",
)
_FACT = re.compile(r"[Tt]he (\w+) of (\w+) is (\w+)|(\w+) is the (\w+) of (\w+)")
Fact = tuple[str, str, str]  # relation, of whom, who
Spec = tuple[
    list[tuple[Fact, bool]], str, list[str], str
]  # facts with whether each is told from the other side; start, relations, end


def graph_paths(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: one name. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="graph_paths",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, hops: int, distractors: int, inverted: int) -> tuple[str, Spec]:
    names = rng.sample(NAMES, min(len(NAMES), hops + 1 + distractors))
    way = names[: hops + 1]
    relations = [rng.choice(RELATIONS) for _ in range(hops)]
    path = [(r, a, b) for r, a, b in zip(relations, way, way[1:], strict=False)]
    known = {(r, a) for r, a, _ in path}  # whoever has a relation has it to one
    others: list[Fact] = []
    while len(others) < distractors:
        r, a, b = rng.choice(RELATIONS), rng.choice(names), rng.choice(names)
        if a != b and (r, a) not in known:
            known.add((r, a))
            others.append((r, a, b))
    turned = set(rng.sample(range(hops), inverted))
    told = [(f, i in turned) for i, f in enumerate(path)] + [(f, rng.random() < inverted / hops) for f in others]
    rng.shuffle(told)
    return f"{sorted(path)} {sorted(others)} {way[0]} {relations}", (told, way[0], relations, way[-1])


def pose(spec: Spec) -> dict[str, Any]:
    told, start, relations, end = spec
    facts = [
        f"{who} is the {r} of {whom}" if other else f"the {r} of {whom} is {who}" for (r, whom, who), other in told
    ]
    at = {(r, whom): who for (r, whom, who), _ in told}
    passed = [start]
    for r in relations:
        passed.append(at[r, passed[-1]])
    return {
        "prompt": WORDINGS.write(facts="; ".join(facts), start=start, way=" then its ".join(relations)),
        "answer": end,
        "verifier": "exact",
        "working": ", ".join(f"{r} of {a} is {b}" for r, a, b in zip(relations, passed, passed[1:], strict=False)),
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    text, place = read["facts"], read["start"]
    ends: dict[tuple[str, str], set[str]] = {}
    for match in map(_FACT.fullmatch, text.split("; ")):
        if not match:
            raise Refused(f"roundtrip: {text!r} holds what is no fact")
        r, whom, who = match.groups()[:3] if match[1] else (match[5], match[6], match[4])
        ends.setdefault((r, whom), set()).add(who)
    for r in read["way"].split(" then its "):
        reached = ends.get((r, place), set())
        if len(reached) != 1:
            raise Refused(
                f"{'not_unique' if reached else 'impossible'}: the {r} of {place} is one of {sorted(reached)}"
            )
        (place,) = reached
    return place
