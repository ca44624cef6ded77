"""Place boxes in a frame so that none overlap and all relations hold; any such layout is right.

Certificate: the boxes are drawn in place, so a layout exists; from the text a search over all places, largest box
first, finds one on its own. Difficulty axes: boxes, size of the frame, relations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.families._wordings import Wordings, listed
from synth.types import Problem, Quarantined, Split
from synth.verify.layout import fits

LADDER = (
    {"boxes": 3, "size": 4, "relations": 2},
    {"boxes": 3, "size": 5, "relations": 3},
    {"boxes": 4, "size": 6, "relations": 3},
    {"boxes": 5, "size": 7, "relations": 4},
)
CERTIFICATE = ("boxes drawn in place", "search over all places from the text")
WORDINGS = Wordings(
    "Place the boxes {boxes} in a frame {w} wide and {h} high without overlap, with {relations}.",
    "A page is {w} wide and {h} high. Where can the pictures {boxes} go, with {relations} and without overlap?",
    "Arrange {boxes} on a sheet of width {w} and height {h} so that none overlap, with {relations}.",
    "Find places for the boxes {boxes} inside a {w} x {h} frame. They must not overlap. Required: {relations}.",
    "A wall, {w} wide and {h} high, is to hold the posters {boxes}, no two of them overlapping, with {relations}. Where does each go?",
    answer="Sizes are width x height, nothing is turned. Answer with the left and top edge of each, counted from 0, such as A 0 2, B 3 1.",
    boxes=r"[A-Z] \(\d+ x \d+\)(?:(?:, | and )[A-Z] \(\d+ x \d+\))+",
    relations=r"[A-Z] (?:left of|above) [A-Z](?:(?:, | and )[A-Z] (?:left of|above) [A-Z])*",
)
_BOX = re.compile(r"([A-Z]) \((\d+) x (\d+)\)")
_RELATION = re.compile(r"([A-Z]) (left of|above) ([A-Z])")


def box_layouts(seed: int, split: Split, index: int, *, levels: Sequence[int] = (1,)) -> Problem | Quarantined:
    """Problem `index` of a split: "A 0 0, B 3 1". `levels` are the levels to draw from."""
    return item(
        seed,
        split,
        index,
        levels,
        family="box_layouts",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )


def draw(rng: Random, *, boxes: int, size: int, relations: int) -> tuple[str, tuple]:
    while True:
        width, height = rng.randint(size - 1, size + 2), rng.randint(size - 1, size + 2)
        corners, at = {}, {}
        for name in "ABCDEF"[:boxes]:
            for _ in range(20):
                w, h = rng.randint(1, max(2, width // 2)), rng.randint(1, max(2, height // 2))
                x, y = rng.randint(0, width - w), rng.randint(0, height - h)
                if fits({**at, name: (x, y)}, width, height, {**corners, name: (w, h)}, ()):
                    corners[name], at[name] = (w, h), (x, y)
                    break
        if len(corners) < boxes:
            continue
        true = [
            (a, kind, b)
            for a in corners
            for b in corners
            for kind, k in (("left of", 0), ("above", 1))
            if a != b and at[a][k] + corners[a][k] <= at[b][k]
        ]
        if len(true) >= relations:
            chosen = rng.sample(true, relations)
            return f"{width} {height} {sorted(corners.items())} {sorted(chosen)}", (width, height, corners, at, chosen)


def pose(spec: tuple) -> dict[str, Any]:
    width, height, boxes, at, relations = spec
    return {
        "prompt": WORDINGS.write(
            boxes=listed([f"{n} ({w} x {h})" for n, (w, h) in boxes.items()]),
            w=width,
            h=height,
            relations=listed([f"{a} {kind} {b}" for a, kind, b in relations]),
        ),
        "answer": ", ".join(f"{n} {x} {y}" for n, (x, y) in at.items()),
        "verifier": "layout",
        "args": {
            "width": width,
            "height": height,
            "boxes": {n: list(b) for n, b in boxes.items()},
            "relations": [list(r) for r in relations],
        },
    }


def solve(question: str) -> str:
    read = WORDINGS.read(question)
    width, height = int(read["w"]), int(read["h"])
    boxes = {n: (int(w), int(h)) for n, w, h in _BOX.findall(read["boxes"])}
    relations = _RELATION.findall(read["relations"])
    low = {n: [0, 0] for n in boxes}
    high = {n: [width - w, height - h] for n, (w, h) in boxes.items()}
    for _ in boxes:  # what the relations say of each box alone, after as many rounds as the longest chain
        for a, kind, b in relations:
            k = 0 if kind == "left of" else 1
            low[b][k] = max(low[b][k], low[a][k] + boxes[a][k])
            high[a][k] = min(high[a][k], high[b][k] - boxes[a][k])
    names = sorted(boxes, key=lambda n: -boxes[n][0] * boxes[n][1])
    placed = _search(names, boxes, relations, low, high, width, {}, 0)
    if placed is None:
        raise Refused("impossible: no layout exists")
    return ", ".join(f"{n} {x} {y}" for n, (x, y) in sorted(placed.items()))


def _search(
    names, boxes, relations, low, high, width: int, at: dict[str, tuple[int, int]], taken: int
) -> dict[str, tuple[int, int]] | None:
    """Places for all of `names`, or None. `taken` has a bit for every cell of the frame, rows of `width` bits."""
    if len(at) == len(names):
        return at
    name = names[len(at)]
    w, h = boxes[name]
    shape = sum(((1 << w) - 1) << (row * width) for row in range(h))
    for y in range(low[name][1], high[name][1] + 1):
        for x in range(low[name][0], high[name][0] + 1):
            cells = shape << (y * width + x)
            if cells & taken:
                continue
            here = {**at, name: (x, y)}
            if all(
                a not in here or b not in here or (here[a][k := kind != "left of"] + boxes[a][k] <= here[b][k])
                for a, kind, b in relations
                if name in (a, b)
            ) and (placed := _search(names, boxes, relations, low, high, width, here, taken | cells)):
                return placed
    return None
