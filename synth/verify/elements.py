"""Typed boxes on a screen, "button 9 17 15 23; field 25 1 31 7", scored as a set.

Yang et al. 2025, "UI-UG: A Unified MLLM for UI Understanding and Generation" (arXiv 2509.24361), read from the abstract: an
overlap of half is our reading.

    pairs    the one-to-one matching with the largest sum of overlaps (Kuhn 1955)
    value    F1: 2 * pairs of one type whose overlap is at least 1/2 / (given + wanted)

parts: `iou` (sum of the pairs' overlaps over max(given, wanted)), `type` (share of the pairs of one type), `exact` (1 where
the value is 1). The order of elements does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE
from synth.verify.boxes import Box, iou

FORM = "literal"
GIVES = ("iou", "type", "exact")
EXAMPLE = {"prompt": "Which elements are shown?", "answer": "button 1 1 7 7; field 9 1 15 7"}
MOST = 8  # elements of an answer
Element = tuple[str, Box]
_ELEMENT = re.compile(r" *([a-z]{1,12}) ([0-9]{1,5}) ([0-9]{1,5}) ([0-9]{1,5}) ([0-9]{1,5}) *")


def read(text: str) -> list[Element] | None:
    """The elements of a text; None where it is no list of up to MOST of them with an area."""
    if len(text) > 50 * MOST:
        return None
    matches = [_ELEMENT.fullmatch(part) for part in text.split(";")]
    if len(matches) > MOST or not all(matches):
        return None
    out = [(m[1], (int(m[2]), int(m[3]), int(m[4]), int(m[5]))) for m in matches if m]
    return out if all(b[0] < b[2] and b[1] < b[3] for _, b in out) else None


def matched(given: Sequence[Element], wanted: Sequence[Element]) -> list[tuple[int, int]]:
    """Pairs (i, j) of the one-to-one matching with the largest sum of overlaps; of equal sums the one with more pairs of one
    type. Elements that overlap nothing stay alone."""
    best: dict[int, tuple[float, int, tuple[tuple[int, int], ...]]] = {0: (0.0, 0, ())}  # taken -> sum, types, pairs
    for i, (kind, box) in enumerate(given):
        extended = dict(best)
        for taken, (total, same, pairs) in best.items():
            for j, (other, there) in enumerate(wanted):
                if taken >> j & 1 or not (overlap := iou(box, there)):
                    continue
                now = (total + overlap, same + (kind == other), (*pairs, (i, j)))
                if (key := taken | 1 << j) not in extended or now[:2] > extended[key][:2]:
                    extended[key] = now
        best = extended
    return list(max(best.values(), key=lambda v: v[:2])[2])


def elements(problem: Problem, answer: str) -> Score:
    if not (gold := read(problem.answer)):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no list of elements")
    if not (given := read(answer)):
        return UNPARSABLE
    pairs = matched(given, gold)
    overlaps = [iou(given[i][1], gold[j][1]) for i, j in pairs]
    same = [given[i][0] == gold[j][0] for i, j in pairs]
    hits = sum(s and o >= 0.5 for s, o in zip(same, overlaps, strict=True))
    value = 2 * hits / (len(given) + len(gold))
    parts = {
        "parsed": 1.0,
        "iou": sum(overlaps) / max(len(given), len(gold)),
        "type": sum(same) / len(pairs) if pairs else 0.0,
        "exact": float(value == 1.0),
    }
    return Scored(value=value, parts=parts)
