"""Sort a list of integers, up or down.

Certificate: Python's sort against placing each item at its rank (the count of items that come before it), and both must
be a rearrangement of the input. Difficulty axes: length, size and sign of the items, direction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, finish, parsed, rung, sample
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"shortest": 3, "longest": 5, "size": 20, "signed": False, "directions": ("ascending",)},
    {"shortest": 4, "longest": 6, "size": 99, "signed": False, "directions": ("ascending", "descending")},
    {"shortest": 6, "longest": 9, "size": 99, "signed": True, "directions": ("ascending", "descending")},
    {"shortest": 8, "longest": 14, "size": 999, "signed": True, "directions": ("ascending", "descending")},
)
CERTIFICATE = ("sort", "rank")
_TEXT = re.compile(r"Sort (ascending|descending): (-?\d+(?: -?\d+)*)")


def list_sorting(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from, 1 the easiest."""

    def draw(rng: Random) -> tuple[str, tuple[int, list[int], str]]:
        level, knobs = rung(LADDER, levels, rng, "list_sorting")
        length = rng.randint(knobs["shortest"], knobs["longest"])
        numbers = [rng.randint(-knobs["size"] if knobs["signed"] else 1, knobs["size"]) for _ in range(length)]
        return f"list_sorting:{sorted(numbers)}", (level, numbers, rng.choice(knobs["directions"]))

    root, (level, numbers, direction) = sample(seed, "list_sorting", split, index, draw)
    ordered = sorted(numbers, reverse=direction == "descending")
    text = " ".join(map(str, ordered))
    return finish(
        certify(numbers, ordered, direction),
        seed=seed,
        index=index,
        root=root,
        split=split,
        family="list_sorting",
        prompt=f"Sort {direction}: {' '.join(map(str, numbers))}",
        answer=text,
        verifier="ordered_list",
        difficulty={"level": level, "length": len(numbers), "size": max(map(abs, numbers))},
        solution=f"<answer>{text}</answer>",
        lineage={"certificate": list(CERTIFICATE)},
    )


def certify(numbers: Sequence[int], ordered: Sequence[int], direction: str) -> str | None:
    """None, or "routes_disagree: evidence" where `ordered` is not what ranking gives."""
    ranked = _ranked(numbers, direction)
    if ranked != list(ordered) or Counter(ranked) != Counter(numbers):
        return f"routes_disagree: sorting gives {list(ordered)}, ranking {ranked}"
    return None


def solve(question: str) -> str:
    """The answer from the text alone, by ranking."""
    direction, numbers = parsed(_TEXT, question).groups()
    return " ".join(map(str, _ranked([int(n) for n in numbers.split()], direction)))


def _ranked(numbers: Sequence[int], direction: str) -> list[int]:
    sign = -1 if direction == "descending" else 1
    ranked = [0] * len(numbers)
    for i, n in enumerate(numbers):
        ranked[sum(sign * m < sign * n or (m == n and j < i) for j, m in enumerate(numbers))] = n
    return ranked


def posed(question: str) -> dict[str, Any]:
    """A list that was proposed: its normal form, text and the sorted list. Raises Refused for another text."""
    direction, listed = parsed(_TEXT, question).groups()
    numbers = [int(n) for n in listed.split()]
    if max(map(abs, numbers)) > 10**6:
        raise Refused("roundtrip: numbers up to a million")
    ordered = sorted(numbers, reverse=direction == "descending")
    return {
        "form": str(sorted(numbers)),
        "prompt": f"Sort {direction}: {' '.join(map(str, numbers))}",
        "answer": " ".join(map(str, ordered)),
        "verifier": "ordered_list",
    }
