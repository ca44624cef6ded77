"""Requests about small screens, which the environments `look`, `page`, `point` and `screen` show as pictures: point at a widget,
name its box or the boxes of all buttons or fields, or press and write in a given order. Where `asks` names it, also all
elements with their kinds and boxes, and whether a first action is right (`judge`), with the reason as working.

The question describes the screen in its first line (synth/scenes/screens.py) and asks in its last. Certificate: the answer
from the values, against the answer read from the pixels of the drawn screen. Difficulty axes: widgets and steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.scenes import parts
from synth.scenes.scenes import CELL, COLOURS
from synth.scenes.screens import Screen, Widget, pixels, read, seen
from synth.types import Problem, Quarantined, Split

LADDER = ({"widgets": 3, "steps": 2}, {"widgets": 5, "steps": 3}, {"widgets": 7, "steps": 4})
CERTIFICATE = ("values", "pixels")
CELLS = 4
LETTERS = "abcd"
ASKS = ("point", "boxes", "steps")
ASKED = {
    "point": re.compile(r"Point at the (\w+ \w+)\."),
    "boxes": re.compile(r"Which boxes hold the (button|field)s\?"),
    "steps": re.compile(r"(Press|Write) [^?]*\."),
    "elements": re.compile(r"Which elements are shown\?"),
    "judge": re.compile(r"((?:Press|Write) .*\.) Action: (click \d \d|type [a-d])\. Is it right\?"),
}
PART = re.compile(r"(?:P|p)ress the (\w+ button)|(?:W|w)rite ([a-d]) into the (\w+ field)")
Spec = tuple[Screen, str, str]  # what is asked, and the answer by construction


def screen_tasks(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    asks: Sequence[str] = ASKS,
    env: str = "look",
) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from, `asks` the kinds of requests; env "look", "point",
    "page" and "screen" show the picture, "single" the description. Raises ValueError for an unknown kind."""
    if not asks or any(a not in ASKED for a in asks):
        raise ValueError(f"screen_tasks: asks is {list(asks)}: name some of {', '.join(ASKED)}")

    def drawn(rng: Random, *, widgets: int, steps: int) -> tuple[str, Spec]:
        return draw(rng, widgets=widgets, steps=steps, asks=asks)

    return item(
        seed,
        split,
        index,
        levels,
        family="screen_tasks",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )


def screen(rng: Random, widgets: int) -> Screen:
    """A screen of 2 to `widgets` widgets of different names, at least one of each kind, and a cursor where none is."""
    names = [(c, k) for c in COLOURS for k in ("button", "field")]
    while True:
        chosen = rng.sample(names, rng.randint(2, widgets))
        if len({k for _, k in chosen}) == 2:
            break
    cells = rng.sample([(x, y) for x in range(CELLS) for y in range(CELLS)], len(chosen) + 1)
    placed = tuple(Widget(c, k, x, y) for (c, k), (x, y) in zip(chosen, cells, strict=False))
    return Screen(CELL * CELLS, tuple(sorted(placed, key=lambda w: (w.y, w.x))), cells[-1])


def draw(rng: Random, *, widgets: int, steps: int, asks: Sequence[str] = ASKS) -> tuple[str, Spec]:
    shown, kind = screen(rng, widgets), rng.choice(list(asks))
    if kind == "point":
        one = rng.choice(shown.widgets)
        query, answer = f"Point at the {one.name}.", _box(one)
    elif kind == "boxes":
        of = rng.choice(("button", "field"))
        query = f"Which boxes hold the {of}s?"
        answer = "; ".join(_box(w) for w in shown.widgets if w.kind == of)
    elif kind == "judge":
        ((told, done),) = _requested(rng, shown, 1)
        first = done.partition(";")[0]
        other = rng.choice([w for w in shown.widgets if f"click {w.x} {w.y}" != first])
        action = first if rng.random() < 0.5 else f"click {other.x} {other.y}"
        query, answer = f"{told}. Action: {action}. Is it right?".capitalize(), "yes" if action == first else "no"
        query = query.replace("action:", "Action:").replace("is it right?", "Is it right?")
    elif kind == "elements":
        query, answer = "Which elements are shown?", "; ".join(f"{w.kind} {_box(w)}" for w in shown.widgets)
    else:
        told, done = zip(*_requested(rng, shown, steps), strict=True)
        query, answer = f"{', then '.join(told)}.".capitalize(), "; ".join(done)
    return f"{shown.text}\n{query}", (shown, query, answer)


def _requested(rng: Random, shown: Screen, steps: int) -> list[tuple[str, str]]:
    """Up to `steps` parts of a request in words, each with its actions."""
    out = []
    for w in rng.sample(shown.widgets, min(steps, len(shown.widgets))):
        letter = rng.choice(LETTERS)
        if w.kind == "button":
            out.append((f"press the {w.name}", f"click {w.x} {w.y}"))
        else:
            out.append((f"write {letter} into the {w.name}", f"click {w.x} {w.y}; type {letter}"))
    return out


def _box(w: Widget) -> str:
    return " ".join(map(str, w.box))


def pose(spec: Spec) -> dict[str, Any]:
    shown, query, answer = spec
    others = {"steps": "clicks", "elements": "elements"}
    verifier = next((v for kind, v in others.items() if ASKED[kind].fullmatch(query)), "boxes")
    posed = {"prompt": f"{shown.text}\n{query}", "answer": answer, "verifier": verifier}
    if match := ASKED["judge"].fullmatch(query):
        w = _aimed(match[1], shown)
        return posed | {"verifier": "exact", "working": f"the {w.name} is at {w.x} {w.y}"}
    return posed


def _aimed(request: str, shown: Screen) -> Widget:
    """The widget that a request of one part is about."""
    match = PART.search(request)
    if match is None:
        raise Refused(f"roundtrip: {request!r} asks for nothing")
    return shown.named(match[1] or match[3])


def solve(question: str) -> str:
    """From the pixels of the screen alone."""
    shown, query = parts(question)
    try:
        screen = seen(pixels(read(shown)))
        if match := ASKED["point"].fullmatch(query):
            return _box(screen.named(match[1]))
        if match := ASKED["boxes"].fullmatch(query):
            return "; ".join(_box(w) for w in screen.widgets if w.kind == match[1])
        if match := ASKED["judge"].fullmatch(query):
            w = _aimed(match[1], screen)
            return "yes" if match[2] == f"click {w.x} {w.y}" else "no"
        if ASKED["elements"].fullmatch(query):
            return "; ".join(f"{w.kind} {_box(w)}" for w in screen.widgets)
        if not ASKED["steps"].fullmatch(query):
            raise Refused(f"roundtrip: {query!r} asks nothing about a screen")
        done = []
        for one in PART.finditer(query):
            w = screen.named(one[1] or one[3])
            done += [f"click {w.x} {w.y}", *([f"type {one[2]}"] if one[2] else [])]
        return "; ".join(done)
    except Refused:
        raise
    except (ValueError, LookupError) as e:
        raise Refused(f"roundtrip: {e}") from e
