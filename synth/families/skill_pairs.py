"""Two functions of a list, one after the other: a problem that needs two skills at once.

Certificate: comprehensions over the drawn steps against loops over the phrases of the text. Difficulty axis: items. The
pairs are what Instruct-SkillMix combines (`synth.selfplay.propose.skill_pairs`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._lists import PHRASES, Step, apply, draw_step, phrase, replay
from synth.families._sample import Refused, item
from synth.families._wordings import Wordings
from synth.types import Problem, Quarantined, Split

LADDER = ({"items": 4}, {"items": 6}, {"items": 9})
CERTIFICATE = ("comprehensions over the steps", "loops over the phrases of the text")
WORDINGS = Wordings(
    "{numbers}: first {one}, then {two}.",
    "Take the list {numbers}. First {one}, then {two}.",
    "What does the list {numbers} become if you {one} and then {two}?",
    "Do two things with the list {numbers}: {one}; {two}.",
    "Here is a list: {numbers}. Now {one}. After that, {two}. What is the list now?",
    answer="Answer with the numbers, parted by spaces, or with the word empty.",
    numbers=r"\d+(?: \d+)*",
    one="[a-z0-9 ]+",
    two="[a-z0-9 ]+",
)


def skill_pairs(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: the list after both steps. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="skill_pairs",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, items: int) -> tuple[str, tuple]:
    one, two = draw_step(rng), draw_step(rng)
    while two[0] == one[0]:
        two = draw_step(rng)
    return _spec(tuple(rng.randint(1, 15) for _ in range(items)), one, two)


def _spec(numbers: tuple[int, ...], one: Step, two: Step) -> tuple[str, tuple]:
    return f"{numbers} {one} {two}", (numbers, one, two)


def pose(spec: tuple) -> dict[str, Any]:
    numbers, one, two = spec
    middle = apply(one, numbers)
    return {
        "prompt": WORDINGS.write(**_fields(spec)),
        "answer": _write(apply(two, middle)),
        "verifier": "exact",
        "working": _write(middle),
    }


def _write(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers)) or "empty"


def _fields(spec: tuple) -> dict[str, str]:
    numbers, one, two = spec
    return {"numbers": _write(numbers), "one": phrase(one), "two": phrase(two)}


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    return _write(replay(read["two"], replay(read["one"], [int(n) for n in read["numbers"].split()])))


def posed(question: str) -> dict[str, Any]:
    """A question that was proposed in any of the wordings, read back into values; it stays in its wording. Raises Refused
    for another text, the same skill twice, or over 20 numbers."""
    read = WORDINGS.read(question)
    steps: list[Step] = []
    for text in (read["one"], read["two"]):
        matches = [(name, m) for name, p in PHRASES.items() if (m := re.fullmatch(p.replace("{}", r"(\d{1,3})"), text))]
        if not matches:
            raise Refused(f"roundtrip: {text!r} names no function")
        name, match = matches[0]
        steps.append((name, int(match[1]) if match.groups() else 0))
    values = tuple(int(n) for n in read["numbers"].split())
    if steps[0][0] == steps[1][0] or len(values) > 20 or max(values) > 999 or ("multiples", 0) in steps:
        raise Refused("roundtrip: two different functions of up to 20 numbers below 1000")
    form, spec = _spec(values, *steps)
    return {"form": form, **pose(spec), **({"prompt": question} if _fields(spec) == read else {})}
