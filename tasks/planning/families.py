"""The list of families of problems: name, levels, speed, certificate. It includes the user's own (`pieces/`,
ESPALIER_PATH)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from synth.types import Problem
from tasks.planning.pieces import files, find, module

FOLDER = "family"


@dataclass(frozen=True)
class Family:
    """levels: easiest first. rate: items made and certified in one second of CPU time, over all levels;
    None if not measured."""

    name: str
    levels: tuple[dict[str, Any], ...]
    certificate: tuple[str, ...]
    rate: float | None
    example: str


def families(*, seconds: float = 0.05) -> Iterator[Family]:
    """Every family; each is run for `seconds` of CPU time to measure its rate (0: not measured)."""
    for name in sorted(files(FOLDER)):
        function, source = find(FOLDER, name), module(FOLDER, name)
        ladder = tuple(dict(rung) for rung in getattr(source, "LADDER", ()))
        knobs = {"levels": list(range(1, len(ladder) + 1))} if ladder else {}
        first = function(0, "train", 0, **knobs)  # a family builds its cached tables here, outside the measured time
        rate = None
        if seconds:
            start, count = time.process_time(), 0
            while (used := time.process_time() - start) < seconds or not count:
                count += 1
                function(0, "train", count, **knobs)
            rate = count / used if used else None
        example = first.question if isinstance(first, Problem) else ""
        yield Family(name, ladder, tuple(getattr(source, "CERTIFICATE", ())), rate, example)


def sandbox() -> str:
    """A sentence on what isolates model-written Python on this machine."""
    from synth.sandbox.parent import strongest

    return (
        strongest()
        or "none works here, so Python answers are refused: install bubblewrap on a kernel with Landlock (5.13 and later)"
    )
