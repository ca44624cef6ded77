"""Small screens with buttons, fields and a cursor: a description as text, its pixels, and what a click or typed text does.

    Screen of 32: red button 1 2; blue field 3 0 b; green button 0 0 pressed; cursor 2 3

A screen is a grid of cells of 8 x 8 pixels. A widget has a colour, a kind, the column and row of its cell, and a state: of a
button nothing or "pressed", of a field nothing, "focus" or the letter that it holds. The cursor is in a cell and drawn over
what is there; a screen need not have one. `after` is the exact transition; `seen` reads widgets and cursor from the pixels
alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from synth.scenes.scenes import CELL, COLOURS, GROUND

TEXT = re.compile(r"Screen of (\d+): (.*)")
WIDGET = re.compile(r"(\w+) (button|field) (\d+) (\d+)(?: (pressed|focus|[a-d]))?")
CURSOR = re.compile(r"cursor (\d+) (\d+)")
ACTION = re.compile(r"click (\d{1,3}) (\d{1,3})|type ([a-d])")
INK = (20, 20, 20)
EDGE = 6  # pixels: height and width of a widget
# How a field shows its letter, 4 x 4 pixels; "focus" is a caret.
MARKS = {
    "a": ("....", ".##.", ".##.", "...."),
    "b": ("#...", "#...", "#...", "####"),
    "c": ("#..#", "....", "....", "#..#"),
    "d": ("####", "....", "....", "####"),
    "focus": ("#...", "#...", "#...", "#..."),
}
FORM = "write 'Screen of 32: red button 1 2; blue field 3 0; cursor 2 3'"


@dataclass(frozen=True, order=True)
class Widget:
    """A button or a field in a cell."""

    colour: str
    kind: str
    x: int
    y: int
    state: str = ""

    @property
    def name(self) -> str:
        return f"{self.colour} {self.kind}"

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Its first column and row of pixels, and those after its last."""
        gap = (CELL - EDGE) // 2
        return CELL * self.x + gap, CELL * self.y + gap, CELL * (self.x + 1) - gap, CELL * (self.y + 1) - gap


@dataclass(frozen=True)
class Screen:
    side: int
    widgets: tuple[Widget, ...]
    cursor: tuple[int, int] | None = None

    @property
    def cells(self) -> int:
        return self.side // CELL

    @property
    def text(self) -> str:
        told = [f"{w.name} {w.x} {w.y} {w.state}".rstrip() for w in sorted(self.widgets, key=lambda w: (w.y, w.x))]
        told += [f"cursor {self.cursor[0]} {self.cursor[1]}"] if self.cursor else []
        return f"Screen of {self.side}: {'; '.join(told)}"

    def named(self, name: str) -> Widget:
        """The widget of a name. Raises LookupError where the screen has none or two."""
        matches = [w for w in self.widgets if w.name == name]
        if len(matches) != 1:
            raise LookupError(f"the screen has {len(matches)} of {name}")
        return matches[0]


def read(text: str) -> Screen:
    """The screen of a description. Raises ValueError for a text that describes none."""
    match = TEXT.fullmatch(text)
    told = match[2].split("; ") if match else []
    last = CURSOR.fullmatch(told[-1]) if told else None
    matches = [WIDGET.fullmatch(x) for x in (told[:-1] if last else told)]
    if match is None or not all(matches):
        raise ValueError(f"{text[:80]!r} describes no screen: {FORM}")
    widgets = tuple(Widget(m[1], m[2], int(m[3]), int(m[4]), m[5] or "") for m in matches if m)
    screen = Screen(int(match[1]), widgets, (int(last[1]), int(last[2])) if last else None)
    places = [(w.x, w.y) for w in widgets]
    far = max([*(v for p in places for v in p), *(screen.cursor or ())], default=0)
    fits = all(
        w.colour in COLOURS and (w.state == "pressed" if w.kind == "button" else w.state != "pressed")
        for w in widgets
        if w.state
    )
    focused = sum(w.state == "focus" for w in widgets)
    if screen.side % CELL or far >= screen.cells or len(set(places)) < len(places) or not fits or focused > 1:
        raise ValueError(
            f"{text[:80]!r} has a widget outside, two in one cell, or one in a state that it cannot have: {FORM}; buttons are pressed, "
            "fields hold a letter from a to d, and one may have the focus"
        )
    if unknown := [w.colour for w in widgets if w.colour not in COLOURS]:
        raise ValueError(f"{text[:80]!r}: no colour {unknown[0]}: name {', '.join(COLOURS)}")
    return screen


def after(screen: Screen, action: str) -> Screen:
    """The screen after "click COLUMN ROW" or "type LETTER". A click moves the cursor there, presses a button, and gives an
    empty field the focus, which nothing else keeps; a letter goes into the field that has the focus, and is lost without
    one. Raises ValueError for another text, and for a click outside."""
    match = ACTION.fullmatch(action.strip())
    if match is None or (not match[3] and max(int(match[1]), int(match[2])) >= screen.cells):
        raise ValueError(f"{action[:40]!r} is no action on this screen: write 'click COLUMN ROW' or 'type LETTER'")
    if match[3]:
        typed = (replace(w, state=match[3]) if w.state == "focus" else w for w in screen.widgets)
        return replace(screen, widgets=tuple(typed))
    at = int(match[1]), int(match[2])

    def clicked(w: Widget) -> Widget:
        if (w.x, w.y) != at:
            return replace(w, state="") if w.state == "focus" else w
        return replace(w, state="pressed" if w.kind == "button" else w.state or "focus")

    return replace(screen, widgets=tuple(clicked(w) for w in screen.widgets), cursor=at)


def left(now: Screen, wanted: Screen) -> int | None:
    """Actions that are left until the widgets are as wanted; None where no action leads there."""
    total = 0
    for a in now.widgets:
        b = next((w for w in wanted.widgets if w.name == a.name), None)
        state = "" if b is None or b.state == "focus" else b.state
        held = "" if a.state == "focus" else a.state
        if held and held != state:
            return None
        if held != state:
            total += 1 if a.kind == "button" or a.state == "focus" else 2
    return total


def pixels(screen: Screen) -> np.ndarray:
    """[side, side, 3] uint8."""
    out = np.full((screen.side, screen.side, 3), GROUND, dtype=np.uint8)
    for w in screen.widgets:
        left, top, right, bottom = w.box
        out[top:bottom, left:right] = COLOURS[w.colour]
        inside = out[top + 1 : bottom - 1, left + 1 : right - 1]
        if w.kind == "field":
            inside[:] = 255
        if w.state == "pressed":
            inside[[0, -1]] = inside[:, [0, -1]] = INK
        elif w.state:
            inside[_mark(w.state)] = INK
    if screen.cursor:
        x, y = (CELL * v + CELL // 2 for v in screen.cursor)
        out[y - 1 : y + 2, x] = out[y, x - 1 : x + 2] = INK
        out[y, x] = 255
    return out


def _mark(state: str) -> np.ndarray:
    return np.array([[c == "#" for c in row] for row in MARKS[state]])


def draw(description: str) -> list[np.ndarray]:
    """The picture of a description, in a list. Raises ValueError for a text that describes no screen."""
    return [pixels(read(description))]


def seen(picture: np.ndarray) -> Screen:
    """What the pixels of a screen [S, S, 3] uint8 show. Raises ValueError for a cell that no widget fills."""
    side = picture.shape[0]
    blank, widgets, cursor = Screen(side, ()), [], None
    for y in range(side // CELL):
        for x in range(side // CELL):
            cell = picture[CELL * y : CELL * (y + 1), CELL * x : CELL * (x + 1)]
            centre = tuple(int(v) for v in cell[CELL // 2, CELL // 2])
            under = tuple(int(v) for v in cell[1, 1])  # the corner of a widget, which nothing covers
            pointed = centre == (255,) * 3 and tuple(cell[CELL // 2 - 1, CELL // 2]) == INK == tuple(
                cell[CELL // 2, CELL // 2 + 1]
            )
            cursor = (x, y) if pointed else cursor
            if under == (GROUND,) * 3:
                continue
            of = [name for name, rgb in COLOURS.items() if rgb == under]
            states = [Widget(of[0], k, x, y, s) for k, each in STATES.items() for s in each] if of else []
            fits = [
                w for w in states if _same(cell, replace(blank, widgets=(w,), cursor=(x, y) if pointed else None), x, y)
            ]
            if len(fits) != 1:
                raise ValueError(f"the cell in column {x}, row {y} of a screen shows no button and no field")
            widgets.append(fits[0])
    return Screen(side, tuple(widgets), cursor)


STATES: dict[str, Sequence[str]] = {"button": ("", "pressed"), "field": ("", *MARKS)}


def _same(cell: np.ndarray, screen: Screen, x: int, y: int) -> bool:
    return bool((pixels(screen)[CELL * y : CELL * (y + 1), CELL * x : CELL * (x + 1)] == cell).all())
