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
from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

LADDER = ({"items": 4}, {"items": 6}, {"items": 9})
CERTIFICATE = ("comprehensions over the steps", "loops over the phrases of the text")
_TEXT = re.compile(r"(\d+(?: \d+)*): first ([a-z0-9 ]+), then ([a-z0-9 ]+)\.")


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
    write = lambda xs: " ".join(map(str, xs)) or "empty"  # noqa: E731
    return {
        "prompt": f"{write(numbers)}: first {phrase(one)}, then {phrase(two)}.",
        "answer": write(apply(two, middle)),
        "verifier": "exact",
        "working": write(middle),
    }


def solve(question: str) -> str:
    numbers, one, two = parsed(_TEXT, question).groups()
    return " ".join(map(str, replay(two, replay(one, [int(n) for n in numbers.split()])))) or "empty"


def posed(question: str) -> dict[str, Any]:
    """A question that was proposed, read back into values. Raises Refused for another text, the same skill twice, or
    over 20 numbers."""
    numbers, *texts = parsed(_TEXT, question).groups()
    steps: list[Step] = []
    for text in texts:
        matches = [(name, m) for name, p in PHRASES.items() if (m := re.fullmatch(p.replace("{}", r"(\d{1,3})"), text))]
        if not matches:
            raise Refused(f"roundtrip: {text!r} names no function")
        name, match = matches[0]
        steps.append((name, int(match[1]) if match.groups() else 0))
    values = tuple(int(n) for n in numbers.split())
    if steps[0][0] == steps[1][0] or len(values) > 20 or max(values) > 999 or ("multiples", 0) in steps:
        raise Refused("roundtrip: two different functions of up to 20 numbers below 1000")
    form, spec = _spec(values, *steps)
    return {"form": form, **pose(spec)}
