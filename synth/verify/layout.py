"""Boxes placed in a frame: "A 0 0, B 3 1" (also "A: (0, 0); B = [3, 1]") gives the left and top edge of each. Right where every box is inside, none
overlap, all relations hold.

`boxes` is {name: [width, height]}; `relations` are [name, "left of" or "above", name]: the first ends where or before
the second begins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from synth.types import Problem, Score, Unscorable
from synth.verify import RIGHT, UNPARSABLE, WRONG

MAX_CHARS = 500
FORM = "number"
EXAMPLE = {
    "prompt": "Place A (2 x 1) and B (1 x 1) in a 3 x 1 frame.",
    "answer": "A 0 0, B 2 0",
    "args": {"width": 3, "height": 1, "boxes": {"A": [2, 1], "B": [1, 1]}, "relations": [["A", "left of", "B"]]},
}
_PLACE = re.compile(r"\s*\"?([A-Z])\"?(?:[\s:=]|\bat\b)*[(\[]?([0-9]{1,3})[\s,]+([0-9]{1,3})[)\]]?\s*", re.ASCII)


def places(text: str) -> dict[str, tuple[int, int]] | None:
    """name -> (left, top); None where `text` is not such a list or names a box twice."""
    out: dict[str, tuple[int, int]] = {}
    if len(text) > MAX_CHARS:
        return None
    text = text.strip()
    text = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    for part in re.split(r"\s*[;\n]\s*|,(?=\s*\"?[A-Z])", text):
        match = _PLACE.fullmatch(part)
        if not match or match[1] in out:
            return None
        out[match[1]] = int(match[2]), int(match[3])
    return out


def layout(
    problem: Problem,
    answer: str,
    *,
    width: int = 0,
    height: int = 0,
    boxes: Mapping[str, Sequence[int]] | None = None,
    relations: Sequence[Sequence[str]] = (),
) -> Score:
    """1 where all boxes are placed as asked. The reference is checked alike."""
    gold = places(problem.answer)
    if gold is None or not fits(gold, width, height, boxes or {}, relations):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no layout of the boxes")
    if (given := places(answer)) is None:
        return UNPARSABLE
    return RIGHT if fits(given, width, height, boxes or {}, relations) else WRONG


def fits(
    at: Mapping[str, tuple[int, int]], width: int, height: int, boxes: Mapping[str, Sequence[int]], relations: Sequence
) -> bool:
    """Whether the places are of exactly these boxes, inside the frame, apart from one another and as related."""
    if at.keys() != boxes.keys():
        return False
    edges = {n: (x, y, x + boxes[n][0], y + boxes[n][1]) for n, (x, y) in at.items()}
    if any(right > width or bottom > height for _, _, right, bottom in edges.values()):
        return False
    names = sorted(edges)
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            (l1, t1, r1, b1), (l2, t2, r2, b2) = edges[a], edges[b]
            if l1 < r2 and l2 < r1 and t1 < b2 and t2 < b1:
                return False
    return all(
        edges[a][2] <= edges[b][0] if kind == "left of" else edges[a][3] <= edges[b][1] for a, kind, b in relations
    )
