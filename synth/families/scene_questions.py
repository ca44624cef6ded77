"""Questions about coloured shapes, which the environment `look` shows as a picture: how many, which colour, where, left
of, larger than, and in which boxes. Where `asks` names it, also how warm the picture is: a rating.

The question describes the scene in its first line (synth/scenes/scenes.py) and asks in its last; `look` draws the one
and tells only the other. Certificate: the answer from the values, against the answer read from the pixels of the drawn
picture. Difficulty axes: things, and the side of the scene in cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, kind_of
from synth.scenes import parts
from synth.scenes.scenes import CELL, COLOURS, SHAPES, SIZES, Thing, describe, pixels, read, seen
from synth.types import Problem, Quarantined, Split

LADDER = (
    {"things": 3, "cells": 4},
    {"things": 5, "cells": 4},
    {"things": 7, "cells": 8},
    {"things": 5, "cells": 16},
)
CERTIFICATE = ("values", "pixels")
ASKS = ("count", "colour", "place", "left", "larger", "box", "shape", "boxes")
ASKED = {
    "count": re.compile(r"How many shapes are (\w+)\?"),
    "colour": re.compile(r"Which colour is the (\w+)\?"),
    "place": re.compile(r"In which column and row is the (\w+ \w+)\?"),
    "left": re.compile(r"Is the (\w+ \w+) left of the (\w+ \w+)\?"),
    "larger": re.compile(r"Is the (\w+ \w+) larger than the (\w+ \w+)\?"),
    "box": re.compile(r"Which box holds the (\w+ \w+)\?"),
    "shape": re.compile(r"Which shape is (\w+)\?"),
    "boxes": re.compile(r"Which boxes hold the (\w+) shapes\?"),
    "warm": re.compile(r"How warm is the picture, from 1 \(no (red) or (yellow) shape\) to 9 \(no other shape\)\?"),
}
Spec = tuple[int, list[Thing], str]  # side, things, what is asked


def scene_questions(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    asks: Sequence[str] = ASKS,
    env: str = "look",
) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from, `asks` the kinds of questions; env "look" shows
    the picture, "single" the description. Raises ValueError for an unknown kind."""
    if not asks or (unknown := [a for a in asks if a not in ASKED]):
        raise ValueError(f"scene_questions: asks is {list(asks)}: name some of {', '.join(ASKED)}") from (
            KeyError(*unknown) if asks else None
        )

    def drawn(rng: Random, *, things: int, cells: int) -> tuple[str, Spec]:
        return draw(rng, things=things, cells=cells, asks=asks)

    return item(
        seed,
        split,
        index,
        levels,
        family="scene_questions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )


def scattered(rng: Random, n: int, cells: int) -> list[Thing]:
    """n things of different names in different cells."""
    names = rng.sample([(c, s) for c in COLOURS for s in SHAPES], n)
    places = rng.sample([(x, y) for x in range(cells) for y in range(cells)], n)
    return [Thing(c, s, rng.choice(SIZES), x, y) for (c, s), (x, y) in zip(names, places, strict=True)]


def draw(rng: Random, *, things: int, cells: int, asks: Sequence[str] = ASKS) -> tuple[str, Spec]:
    """A scene of 2 to `things` things, so that their number gives nothing away, and a question that has one answer."""
    while True:
        kind = rng.choice(list(asks))
        placed = scattered(rng, rng.randint(2, things), cells)
        if query := asked_of(rng, placed, (kind,)):
            return f"{describe(CELL * cells, placed)}\n{query}", (CELL * cells, placed, query)


def asked_of(rng: Random, placed: Sequence[Thing], asks: Sequence[str]) -> str:
    """A question of one of the kinds about these things; "" where the one that was drawn has no one answer."""
    kind = asks[0] if len(asks) == 1 else rng.choice(list(asks))
    a, b = rng.sample(placed, 2)
    if kind == "colour" and sum(t.shape == a.shape for t in placed) > 1:
        return ""
    if kind == "shape" and sum(t.colour == a.colour for t in placed) > 1:
        return ""
    if (kind == "left" and a.x == b.x) or (kind == "larger" and a.size == b.size):
        return ""
    return {
        "count": f"How many shapes are {rng.choice(list(COLOURS))}?",
        "colour": f"Which colour is the {a.shape}?",
        "place": f"In which column and row is the {a.name}?",
        "left": f"Is the {a.name} left of the {b.name}?",
        "larger": f"Is the {a.name} larger than the {b.name}?",
        "box": f"Which box holds the {a.name}?",
        "shape": f"Which shape is {a.colour}?",
        "boxes": f"Which boxes hold the {a.colour} shapes?",
        "warm": "How warm is the picture, from 1 (no red or yellow shape) to 9 (no other shape)?",
    }[kind]


def pose(spec: Spec) -> dict[str, Any]:
    side, things, query = spec
    by = {t.name: t for t in things}
    kind, of = kind_of(query, ASKED, "a scene")
    verifier = "exact"
    if kind == "count":
        answer = str(sum(t.colour == of[0] for t in things))
    elif kind == "colour":
        answer = next(t.colour for t in things if t.shape == of[0])
    elif kind == "place":
        answer = f"{by[of[0]].x} {by[of[0]].y}"
    elif kind == "left":
        answer = "yes" if by[of[0]].x < by[of[1]].x else "no"
    elif kind == "larger":
        answer = "yes" if by[of[0]].size > by[of[1]].size else "no"
    elif kind == "shape":
        answer = next(t.shape for t in things if t.colour == of[0])
    elif kind == "warm":
        answer, verifier = warmth([t.colour for t in things]), "rating"
    else:
        held = [by[of[0]]] if kind == "box" else [t for t in things if t.colour == of[0]]
        boxes = (" ".join(map(str, t.box)) for t in sorted(held, key=lambda t: (t.y, t.x)))
        answer, verifier = "; ".join(boxes), "boxes"
    return {"prompt": f"{describe(side, things)}\n{query}", "answer": answer, "verifier": verifier}


def warmth(colours: Sequence[str]) -> str:
    """The rating from 1 to 9 of shapes of these colours: 1 + 8 times the share that is red or yellow, halves upwards."""
    warm = sum(c in ("red", "yellow") for c in colours)
    return str(1 + (16 * warm + len(colours)) // (2 * len(colours)))


def solve(question: str) -> str:
    """From the pixels of the picture alone."""
    shown, query = parts(question)
    kind, of = kind_of(query, ASKED, "a scene")
    try:
        things = seen(pixels(*read(shown)))
    except ValueError as e:
        raise Refused(f"roundtrip: {e}") from e
    if kind == "count":
        return str(len([t for t in things if t.name.startswith(f"{of[0]} ")]))
    if kind == "boxes":
        return "; ".join(" ".join(str(v) for v in t.box) for t in things if t.name.split()[0] == of[0])
    if kind == "warm":
        return warmth([t.name.split()[0] for t in things])
    matches = [[t for t in things if name in (t.name, t.shape, t.colour)] for name in of]
    if any(len(some) != 1 for some in matches):
        raise Refused(f"not_unique: {', '.join(of)} is shown {[len(some) for some in matches]} times")
    one, *rest = (some[0] for some in matches)
    if kind == "colour":
        return one.name.split()[0]
    if kind == "shape":
        return one.name.split()[1]
    if kind == "place":
        return f"{one.x} {one.y}"
    if kind == "box":
        return " ".join(str(v) for v in one.box)
    gap = rest[0].x - one.x if kind == "left" else one.size - rest[0].size
    if gap == 0:
        raise Refused(f"not_unique: neither {of[0]} nor {of[1]}")
    return "yes" if gap > 0 else "no"
