"""The families of problems on one page: name, levels, speed, certificate. The user's own (`pieces/`, ESPALIER_PATH) are
among them."""

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
    """levels: the ladder, easiest first. rate: items made and certified in one second of CPU time, over all levels;
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
        first = function(0, "train", 0, **knobs)  # tables that a family keeps are made here, and not counted
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
    """Which layer isolates model-written Python here, in words."""
    from synth.sandbox.parent import strongest

    return (
        strongest()
        or "none works here, so Python answers are refused: install bubblewrap on a kernel with Landlock (5.13 and later)"
    )
