"""Statements about a clip, checked against its description: what a model says that it saw.

A statement is "frame 3: red square at 1 2", the frame from 1 and the column and row of the cell. `derived` is what a reader
who has the statements alone would answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.scenes.clips import direction, read

STATEMENT = re.compile(r"frame (\d{1,3}): (\w+ \w+) at (\d{1,3}) (\d{1,3})")
_WAY = re.compile(r"Which way does the (\w+ \w+) move\?")
_FIRST = re.compile(r"Which appears first, the (\w+ \w+) or the (\w+ \w+)\?")


def supported(question: str, statement: str) -> bool:
    """Whether the clip of a question shows what a statement says. Raises ValueError for a question that describes no clip."""
    _, tracks = read(question.partition("\n")[0])
    match = STATEMENT.fullmatch(statement.strip())
    if match is None or match[2] not in tracks:
        return False
    at, track = int(match[1]), tracks[match[2]]
    spot = track[at - 1] if 1 <= at <= len(track) else None
    return spot is not None and spot[:2] == (int(match[3]), int(match[4]))


def derived(question: str, statements: Sequence[str]) -> str:
    """The answer to a question, its last line, that follows from statements alone; "" where none does, also for questions
    other than which way and which first. The last of two statements about one frame counts."""
    told: dict[str, dict[int, tuple[int, int, int]]] = {}
    for match in filter(None, (STATEMENT.fullmatch(s.strip()) for s in statements)):
        told.setdefault(match[2], {})[int(match[1])] = (int(match[3]), int(match[4]), 0)
    if (match := _WAY.fullmatch(question)) and len(spots := told.get(match[1], {})) > 1:
        return direction(tuple(spots[i] for i in sorted(spots)))
    if (match := _FIRST.fullmatch(question)) and all(name in told for name in match.groups()):
        begins = {name: min(told[name]) for name in match.groups()}
        return min(begins, key=lambda name: begins[name]) if len(set(begins.values())) == 2 else ""
    return ""
