"""Which thing is meant? The answers to yes/no questions leave one of the things listed with their properties.

Certificate: the drawn answers are intersected as sets of bits; from the text every thing is checked against every
answer, and one must be left. Every answer is needed: without any one of them another thing would fit too. Difficulty
axes: things, properties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"things": 4, "properties": 4},
    {"things": 6, "properties": 5},
    {"things": 9, "properties": 6},
    {"things": 14, "properties": 7},
)
CERTIFICATE = ("intersection of bit sets", "every thing against every answer of the text")
PROPERTIES = "red round heavy soft old sweet loud small wet sharp warm smooth".split()
SYLLABLES = "bo da fe gu ki lo mu na po ri so tu va we zi".split()
WORDINGS = Wordings(
    "{things}. {answers}. Which one is it?",
    "Which of these is meant? {things}. {answers}.",
    "One of these things is meant. {things}. {answers}. Which?",
    "{answers}. Which of these things is it? {things}.",
    "Find out which thing is meant. {things}. {answers}.",
    answer="Answer with its name alone.",
    things="[a-z]+: [a-z ]+(?:; [a-z]+: [a-z ]+)*",
    answers="Is it [a-z]+[?] (?:yes|no)(?: Is it [a-z]+[?] (?:yes|no))*",
)
_THING = re.compile(r"(\w+): ([\w ]+)")
_ANSWER = re.compile(r"Is it (\w+)\? (yes|no)")


def twenty_questions(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,), env: str = "single"
) -> Problem | Quarantined:
    """Problem `index` of a split: the name of the thing. `levels` are the levels to draw from; env "ask"
    has it played in turns (training/env/ask.py)."""
    return item(
        seed,
        split,
        index,
        levels,
        family="twenty_questions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, things: int, properties: int) -> tuple[str, tuple]:
    while True:
        words = rng.sample(PROPERTIES, properties)
        masks = rng.sample(range(1, 1 << properties), things)
        names: list[str] = []
        while len(names) < things:
            name = rng.choice(SYLLABLES) + rng.choice(SYLLABLES)
            if name not in names and name not in PROPERTIES:
                names.append(name)
        hidden = rng.randrange(things)
        having = [
            sum(1 << t for t, m in enumerate(masks) if m >> p & 1 == masks[hidden] >> p & 1) for p in range(properties)
        ]
        order: list[int] = []
        left = (1 << things) - 1
        for p in rng.sample(range(properties), properties):
            if left != 1 << hidden and left & ~having[p]:
                left &= having[p]
                order.append(p)
        for p in list(order):
            rest = (1 << things) - 1
            for q in order:
                rest &= having[q] if q != p else -1
            if rest == 1 << hidden:
                order.remove(p)
        if len(order) > 1:
            return f"{sorted(zip(names, masks, strict=True))} {words} {sorted(order)}", (
                names,
                masks,
                words,
                hidden,
                order,
            )


def pose(spec: tuple) -> dict[str, Any]:
    names, masks, words, hidden, order = spec
    listed = "; ".join(
        f"{n}: {' '.join(w for p, w in enumerate(words) if m >> p & 1)}" for n, m in zip(names, masks, strict=True)
    )
    answers = " ".join(f"Is it {words[p]}? {'yes' if masks[hidden] >> p & 1 else 'no'}" for p in order)
    return {
        "prompt": WORDINGS.write(things=listed, answers=answers),
        "answer": names[hidden],
        "verifier": "exact",
    }


def solve(question: str) -> str:
    fields = WORDINGS.read(question)
    fits = []
    for name, words in _THING.findall(fields["things"]):
        if all((word in words.split()) == (answer == "yes") for word, answer in _ANSWER.findall(fields["answers"])):
            fits.append(name)
    if len(fits) != 1:
        raise Refused(f"{'not_unique' if fits else 'impossible'}: {' '.join(fits) or 'nothing'} fits")
    return fits[0]
