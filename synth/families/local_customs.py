"""Which of five replies suits a land best, by that land's criteria, which are named before the verdict?

Five lands, each with three criteria and their weights, stand in for cultures; the same replies have another best one in another
land, or the same, so that the marker (the land) can be swapped and the content kept (the metric `marker_probe`). The
question does not state the customs: the judge has to know them, from demonstrations or from rewards.

Certificate: weights summed over what each reply has; from the text, what each reply lacks, in tenths. Difficulty axis: traits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"traits": 2}, {"traits": 3}, {"traits": 4})
CERTIFICATE = ("weights of what each reply has", "weights of what each reply lacks, from the text")
TRAITS: tuple[str, ...] = ("brief", "formal", "warm", "frank", "modest", "playful", "exact", "polite")
CUSTOMS = {  # land -> criterion -> weight in tenths
    "Tamar": {"brief": 5, "formal": 3, "exact": 2},
    "Olvia": {"warm": 5, "polite": 3, "modest": 2},
    "Keld": {"frank": 5, "brief": 3, "playful": 2},
    "Marun": {"formal": 5, "polite": 3, "modest": 2},
    "Ithaa": {"playful": 5, "warm": 3, "frank": 2},
}
WORDINGS = Wordings(
    "Which reply suits {land} best? {replies}.",
    "{replies}. Which of these replies is the best one in {land}?",
    "Choose a reply for {land}: {replies}.",
    "Somebody in {land} waits for a reply. {replies}. Which suits best?",
    "By the customs of {land}, which reply is best? {replies}.",
    answer="Name the land's criteria with their weights, then a colon and the letter.",
    land="[A-Z][a-z]+",
    replies="[A-E]: [a-z, ]+(?:; [A-E]: [a-z, ]+)*",
)
_REPLY = re.compile(r"([A-E]): ([a-z, ]+)")


def local_customs(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: "brief 0.5, formal 0.3, exact 0.2: C". `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="local_customs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, traits: int) -> tuple[str, tuple[str, list[list[str]]]]:
    while True:
        land = rng.choice(list(CUSTOMS))
        replies = [rng.sample(TRAITS, traits) for _ in "ABCDE"]
        worth = sorted(sum(CUSTOMS[land].get(t, 0) for t in reply) for reply in replies)
        if worth[-1] > worth[-2]:
            return f"{land} {[sorted(r) for r in replies]}", (land, replies)


def pose(spec: tuple[str, list[list[str]]]) -> dict[str, Any]:
    land, replies = spec
    worth = [sum(CUSTOMS[land].get(t, 0) for t in reply) for reply in replies]
    listed = "; ".join(f"{letter}: {', '.join(reply)}" for letter, reply in zip("ABCDE", replies, strict=True))
    return {
        "prompt": WORDINGS.write(land=land, replies=listed),
        "answer": f"{named(land)}: {'ABCDE'[worth.index(max(worth))]}",
        "verifier": "criteria_verdict",
    }


def named(land: str) -> str:
    """The criteria of a land, the weightiest first: "brief 0.5, formal 0.3, exact 0.2"."""
    return ", ".join(f"{name} {tenths / 10}" for name, tenths in CUSTOMS[land].items())


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    land = fields["land"]
    if land not in CUSTOMS:
        raise Refused(f"roundtrip: nothing is known of {land}")
    lacks: dict[str, int] = {}
    for letter, reply in _REPLY.findall(fields["replies"]):
        wanted = dict(CUSTOMS[land])
        for trait in reply.split(", "):
            wanted.pop(trait, 0)
        lacks[letter] = sum(wanted.values())
    best = [letter for letter in lacks if lacks[letter] == min(lacks.values())]
    if len(best) != 1:
        raise Refused(f"not_unique: {len(best)} replies suit {land} alike")
    return f"{named(land)}: {best[0]}"
