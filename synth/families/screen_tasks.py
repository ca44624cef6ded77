"""Requests about small screens, which the environments `look`, `page`, `point` and `screen` show as pictures: point at a widget,
name its box or the boxes of all buttons or fields, or press and write in a given order. Where `asks` names it, also all
elements with their kinds and boxes, and whether an action is right after some of the request was done (`judge`), with the
actions that would be right as working. An action is right if less is left to do after it.

The question describes the screen in its first line (synth/scenes/screens.py) and asks in its last. Certificate: the answer
from the values, against the answer read from the pixels of the drawn screen. Difficulty axes: widgets and steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.scenes import parts
from synth.scenes.scenes import CELL, COLOURS
from synth.scenes.screens import Screen, Widget, after, left, pixels, read, seen
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
        told, done = zip(*_requested(rng, shown, steps), strict=True)
        request = f"{', then '.join(told)}.".capitalize()
        shown = _begun(rng, shown, done)
        right, good = _helpful(request, shown), rng.random() < 0.5
        action = rng.choice(right if good else _others(rng, shown, right))
        query = f"{request} Action: {action}. Is it right?"
        answer = "yes" if good else "no"
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


def _begun(rng: Random, shown: Screen, done: Sequence[str]) -> Screen:
    """The screen after some of the actions of a request."""
    actions = "; ".join(done).split("; ")
    for action in actions[: rng.randrange(len(actions))]:
        shown = after(shown, action)
    return shown


def _others(rng: Random, shown: Screen, right: Sequence[str]) -> list[str]:
    """Actions that are not right: a click on each widget and on three more cells, and two letters."""
    cells = [(w.x, w.y) for w in shown.widgets]
    cells += rng.sample([(x, y) for x in range(CELLS) for y in range(CELLS) if (x, y) not in cells], 3)
    actions = [f"click {x} {y}" for x, y in cells] + [f"type {x}" for x in rng.sample(LETTERS, 2)]
    return [a for a in actions if a not in right]


def _box(w: Widget) -> str:
    return " ".join(map(str, w.box))


def pose(spec: Spec) -> dict[str, Any]:
    shown, query, answer = spec
    others = {"steps": "clicks", "elements": "elements"}
    verifier = next((v for kind, v in others.items() if ASKED[kind].fullmatch(query)), "boxes")
    posed = {"prompt": f"{shown.text}\n{query}", "answer": answer, "verifier": verifier}
    if match := ASKED["judge"].fullmatch(query):
        return posed | {"verifier": "exact", "working": ", ".join(_helpful(match[1], shown))}
    return posed


def _helpful(request: str, shown: Screen) -> list[str]:
    """The actions after which less of a request is left: a letter into the field that has the focus, else a click on each widget
    of it that is not as asked."""
    clicks = []
    for m in PART.finditer(request):
        w = shown.named(m[1] or m[3])
        if w.state == "focus":
            return [f"type {m[2]}"]
        clicks += [] if w.state else [f"click {w.x} {w.y}"]
    return clicks


def _wanted(request: str, shown: Screen) -> Screen:
    """The screen on which a request is fulfilled."""
    states = {m[1] or m[3]: m[2] or "pressed" for m in PART.finditer(request)}
    for name in states:
        shown.named(name)
    widgets = (replace(w, state=states.get(w.name, "" if w.state == "focus" else w.state)) for w in shown.widgets)
    return replace(shown, widgets=tuple(widgets))


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
            wanted = _wanted(match[1], screen)
            before, rest = left(screen, wanted), left(after(screen, match[2]), wanted)
            return "yes" if before is not None and rest is not None and rest < before else "no"
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
