"""Stretches of time in a clip, scored by how far they overlap the reference's.

"MUSEG: Reinforcing Video Temporal Understanding via Timestamp-Aware Multi-Segment Grounding" 2025 (arXiv 2505.20715),
read from a summary: how the two terms are mixed is our reading.

A stretch is its first and last frame, both inside, "2-5"; several are parted by ";", in the order of time.

    global   frames in both over frames in either, of all stretches together
    local    the best matching that keeps the order: sum of the pairs' overlaps over max(number given, number wanted)
    value    (global + local) / 2

So one long answer that covers two stretches and the time between them earns part of the first and little of the second.
parts: `global`, `local`, `count` (1 if as many as in the reference).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

FORM = "literal"
GIVES = ("global", "local", "count")
EXAMPLE = {"prompt": "In which frames is the red square shown?", "answer": "2-3; 5-8"}
MOST = 16  # stretches of an answer
Span = tuple[int, int]
_SPAN = re.compile(r" *([0-9]{1,5}) *- *([0-9]{1,5}) *")


def read(text: str) -> list[Span] | None:
    """The stretches of a text; None where it is no list of up to MOST of them, in order and apart."""
    if len(text) > 20 * MOST:
        return None
    matches = [_SPAN.fullmatch(part) for part in text.split(";")]
    if len(matches) > MOST or not all(matches):
        return None
    spans = [(int(m[1]), int(m[2])) for m in matches if m]
    apart = all(a[1] < b[0] for a, b in zip(spans, spans[1:], strict=False))
    return spans if apart and all(a <= b for a, b in spans) else None


def both(a: Span, b: Span) -> int:
    """How many frames two stretches share."""
    return max(0, min(a[1], b[1]) - max(a[0], b[0]) + 1)


def overlap(a: Span, b: Span) -> float:
    return both(a, b) / (a[1] - a[0] + b[1] - b[0] + 2 - both(a, b))


def matched(given: Sequence[Span], wanted: Sequence[Span]) -> float:
    """The largest sum of overlaps of a one-to-one matching that keeps the order of both."""
    best = [0.0] * (len(wanted) + 1)
    for one in given:
        row = [0.0]
        for j, other in enumerate(wanted):
            row.append(max(row[j], best[j + 1], best[j] + overlap(one, other)))
        best = row
    return best[-1]


def segments(problem: Problem, answer: str) -> Score:
    if not (gold := read(problem.answer)):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no list of stretches")
    if not (given := read(answer)):
        return UNPARSABLE
    shared = sum(both(a, b) for a in given for b in gold)
    length = sum(b - a + 1 for a, b in (*given, *gold))
    local = matched(given, gold) / max(len(given), len(gold))
    whole = shared / (length - shared)
    parts = {"parsed": 1.0, "global": whole, "local": local, "count": float(len(given) == len(gold))}
    return Scored(value=(whole + local) / 2, parts=parts)
