"""Boxes in a picture, scored by how far they overlap the reference's.

Zhang et al. 2025, "Geo-R1: Improving Few-Shot Geospatial Referring Expression Understanding with Reinforcement
Fine-Tuning" (arXiv 2509.21976), read from the abstract: the matching and the penalty are our reading.

A box is four whole numbers, left, top, right, bottom, in pixels, right and bottom outside; several are parted by ";".

    IoU(a, b)   area in both over area in either
    value       the best one-to-one matching's sum of IoU over max(number given, number in the reference)

So one box too many or too few costs its share, and the order of boxes does not matter. parts: `iou` (the mean over the
matched pairs), `count` (1 if as many as in the reference), `over_half` (1 if every IoU is at least 0.5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

FORM = "literal"
GIVES = ("iou", "count", "over_half")
EXAMPLE = {"prompt": "Which boxes hold the red shapes?", "answer": "1 1 7 7; 10 10 14 14"}
MOST = 8  # boxes of an answer
Box = tuple[int, int, int, int]
_BOX = re.compile(r"[\[(]? *([0-9]{1,5})[ ,]+([0-9]{1,5})[ ,]+([0-9]{1,5})[ ,]+([0-9]{1,5}) *[\])]?")


def read(text: str) -> list[Box] | None:
    """The boxes of a text; None where it is no list of up to MOST boxes with an area."""
    if len(text) > 40 * MOST:
        return None
    matches = [_BOX.fullmatch(part.strip()) for part in text.strip().split(";")]
    if len(matches) > MOST or not all(matches):
        return None
    boxes = [(int(m[1]), int(m[2]), int(m[3]), int(m[4])) for m in matches if m]
    return boxes if all(a < c and b < d for a, b, c, d in boxes) else None


def iou(a: Box, b: Box) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, wide) * max(0, high)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)


def matched(given: Sequence[Box], wanted: Sequence[Box]) -> list[float]:
    """The overlaps of the one-to-one matching with the largest sum, the largest first."""
    few, many = sorted((given, wanted), key=len)
    best: dict[int, tuple[float, ...]] = {0: ()}  # which of `many` are taken -> overlaps of the boxes so far
    for box in few:
        extended: dict[int, tuple[float, ...]] = {}
        for taken, overlaps in best.items():
            for j, other in enumerate(many):
                if not taken >> j & 1:
                    now = tuple(sorted((*overlaps, iou(box, other)), reverse=True))
                    if (key := taken | 1 << j) not in extended or sum(now) > sum(extended[key]):
                        extended[key] = now
        best = extended
    return list(max(best.values(), key=sum))


def boxes(problem: Problem, answer: str) -> Score:
    if not (gold := read(problem.answer)):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no list of boxes")
    if not (given := read(answer)):
        return UNPARSABLE
    overlaps = matched(given, gold)
    value = sum(overlaps) / max(len(given), len(gold))
    parts = {
        "parsed": 1.0,
        "iou": sum(overlaps) / len(overlaps),
        "count": float(len(given) == len(gold)),
        "over_half": float(len(given) == len(gold) and min(overlaps) >= 0.5),
    }
    return Scored(value=value, parts=parts)
