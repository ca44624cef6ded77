"""Convert a quantity from one unit to another of its kind.

Certificate: the factors of a table relative to one base unit against a walk along a chain of facts between neighbouring
units ("1 km is 1000 m"), which the table does not know. Values are exact. Difficulty axes: distance of the units on the
chain, digits.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from random import Random
from typing import Any

from synth.families._sample import Refused, item, parsed
from synth.types import Problem, Quarantined, Split

TABLE = {  # unit -> how many of the kind's smallest unit
    "length": {"mm": 1, "cm": 10, "m": 1000, "km": 1_000_000},
    "mass": {"mg": 1, "g": 1000, "kg": 1_000_000, "t": 1_000_000_000},
    "time": {"s": 1, "min": 60, "h": 3600, "days": 86_400, "weeks": 604_800},
    "imperial length": {"inches": 1, "feet": 12, "yards": 36, "miles": 63_360},
    "volume": {"ml": 1, "cl": 10, "l": 1000, "hl": 100_000},
    "data": {"bits": 1, "bytes": 8, "KiB": 8192, "MiB": 8_388_608},
}
CHAIN = [  # (1 of the first) = (number) of the second
    *[("km", 1000, "m"), ("m", 100, "cm"), ("cm", 10, "mm"), ("t", 1000, "kg"), ("kg", 1000, "g"), ("g", 1000, "mg")],
    *[
        ("weeks", 7, "days"),
        ("days", 24, "h"),
        ("h", 60, "min"),
        ("min", 60, "s"),
        ("miles", 1760, "yards"),
        ("yards", 3, "feet"),
    ],
    *[
        ("feet", 12, "inches"),
        ("hl", 100, "l"),
        ("l", 100, "cl"),
        ("cl", 10, "ml"),
        ("MiB", 1024, "KiB"),
        ("KiB", 1024, "bytes"),
        ("bytes", 8, "bits"),
    ],
]
LADDER = (
    {"distance": 1, "size": 99, "decimals": 0},
    {"distance": 1, "size": 999, "decimals": 1},
    {"distance": 2, "size": 9999, "decimals": 2},
    {"distance": 3, "size": 99_999, "decimals": 3},
)
CERTIFICATE = ("table relative to a base unit", "walk along facts between neighbouring units")
_TEXT = re.compile(r"How many (\S+) are ([\d.]+) (\S+)\?")
_NEXT: dict[str, list[tuple[str, Fraction]]] = {}
for _one, _number, _other in CHAIN:
    _NEXT.setdefault(_one, []).append((_other, Fraction(_number)))
    _NEXT.setdefault(_other, []).append((_one, Fraction(1, _number)))
Spec = tuple[str, str, str, str]


def unit_conversion(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: an exact number. `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="unit_conversion",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, distance: int, size: int, decimals: int) -> tuple[str, Spec]:
    while True:
        kind = rng.choice(sorted(TABLE))
        names = list(TABLE[kind])
        i = rng.randrange(len(names) - distance)
        down = rng.random() < 0.6
        source, target = (names[i + distance], names[i]) if down else (names[i], names[i + distance])
        amount = Fraction(rng.randint(2, size), 10 ** rng.randint(0, decimals))
        value = amount * TABLE[kind][source] / TABLE[kind][target]
        if (written := decimal(value)) is not None and (text := decimal(amount)) is not None:
            return f"{text} {source} {target}", (text, source, target, written)


def decimal(value: Fraction) -> str | None:
    """The number as a decimal of at most six places; None where it has more."""
    for places in range(7):
        if (value * 10**places).denominator == 1:
            whole = str(int(value * 10**places)).rjust(places + 1, "0")
            return f"{whole[:-places]}.{whole[-places:]}" if places else whole
    return None


def pose(spec: Spec) -> dict[str, Any]:
    text, source, target, written = spec
    return {
        "prompt": f"How many {target} are {text} {source}?",
        "answer": written,
        "verifier": "number",
        "working": f"{text} {source} = {written} {target}",
    }


def solve(question: str) -> str:
    target, amount, source = parsed(_TEXT, question).groups()
    known, waiting = {source: Fraction(amount)}, deque([source])
    while waiting:
        unit = waiting.popleft()
        for other, factor in _NEXT.get(unit, ()):
            if other not in known:
                known[other] = known[unit] * factor
                waiting.append(other)
    if target not in known:
        raise Refused(f"impossible: no chain of facts joins {source} and {target}")
    return str(known[target])
