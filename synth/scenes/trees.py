"""A screen as a tree of rows and columns, in JSON: `{"row": [{"button": "red"}, {"col": [{"field": "blue"}, {"button": "green"}]}]}`.

A leaf is a kind of widget and its colour (synth/scenes/screens.py). A row lays its children side by side, a column one below
the other; each takes as many cells as its own children need, and starts at the top left of what it was given. `laid_out` is the
renderer's first half: the screen that a tree makes, which screens.py draws.
"""

from __future__ import annotations

import json
from typing import Any

from synth.scenes.scenes import CELL, COLOURS
from synth.scenes.screens import Screen, Widget

CELLS = 4  # of a screen, each way
MOST = 600  # characters
DEEP = 6  # levels
FORM = 'write {"row": [{"button": "red"}, {"col": [{"field": "blue"}, {"button": "green"}]}]}'


def laid_out(text: str, cells: int = CELLS) -> Screen:
    """The screen of a tree. Raises ValueError for a text that is no tree, and for one that does not fit or names a widget
    twice."""
    if len(text) > MOST:
        raise ValueError(f"a tree of {len(text)} characters: {MOST} at most")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ValueError(f"{text[:60]!r} is no JSON ({e}): {FORM}") from None
    widgets: list[Widget] = []
    width, height = _placed(tree, 0, 0, 1, widgets)
    if max(width, height) > cells:
        raise ValueError(
            f"{text[:60]!r} needs {width} x {height} cells of {cells} x {cells}: use shorter rows and columns"
        )
    if len({w.name for w in widgets}) < len(widgets):
        raise ValueError(f"{text[:60]!r} has a widget twice")
    return Screen(CELL * cells, tuple(sorted(widgets, key=lambda w: (w.y, w.x))))


def _placed(node: Any, x: int, y: int, level: int, out: list[Widget]) -> tuple[int, int]:
    """Adds the widgets of a node at a cell to `out`; the cells that it needs, across and down."""
    if not isinstance(node, dict) or len(node) != 1 or level > DEEP:
        raise ValueError(f"{str(node)[:60]!r} is no node of one key, or lies deeper than {DEEP}: {FORM}")
    ((kind, inside),) = node.items()
    if kind in ("button", "field"):
        if not isinstance(inside, str) or inside not in COLOURS:
            raise ValueError(f"{str(node)[:60]!r} has no colour of {', '.join(COLOURS)}: {FORM}")
        out.append(Widget(inside, kind, x, y))
        return 1, 1
    if kind not in ("row", "col") or not isinstance(inside, list) or not inside:
        raise ValueError(f"{str(node)[:60]!r} is no row, col, button or field: {FORM}")
    across = down = 0
    for child in inside:
        at = (x + across, y) if kind == "row" else (x, y + down)
        w, h = _placed(child, *at, level + 1, out)
        across, down = (across + w, max(down, h)) if kind == "row" else (max(across, w), down + h)
    return across, down


def holds(screen: Screen, first: str, relation: str, second: str) -> bool:
    """Whether the widget of the first name is "left of" or "above" that of the second; False where one is missing."""
    at = {w.name: (w.x, w.y) for w in screen.widgets}
    k = 0 if relation == "left of" else 1
    return first in at and second in at and at[first][k] < at[second][k]
