"""Coloured shapes on a light ground: a description as text, its pixels, and what can be read from the pixels.

    Scene of 32: red square 6 at 1 2; blue ring 4 at 3 0

A scene of `side` pixels is a grid of cells of 8 x 8 pixels; a thing has a colour, a shape, a height of 4 or 6 pixels
and the column and row of its cell, from the top left. `seen` reads the things from the pixels alone, by corners and
centres and not by the masks that `pixels` draws with: so an answer can be proved from what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CELL = 8  # pixels
GROUND = 235  # never 0: processors drop pictures that are all zero as padding
COLOURS = {"red": (214, 40, 40), "green": (30, 150, 60), "blue": (40, 70, 200), "yellow": (225, 180, 20)}
SHAPES = ("square", "ring", "cross", "triangle")
SIZES = (4, 6)
TEXT = re.compile(r"Scene of (\d+): (.*)")
THING = re.compile(r"(\w+) (\w+) (\d+) at (\d+) (\d+)")


@dataclass(frozen=True, order=True)
class Thing:
    """A shape in a cell. size: its height in pixels; x, y: column and row of its cell."""

    colour: str
    shape: str
    size: int
    x: int
    y: int

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Its first column and row of pixels, and those after its last."""
        gap = (CELL - self.size) // 2
        left, top = CELL * self.x + gap, CELL * self.y + gap
        return left, top, left + self.size, top + self.size


def describe(side: int, things: Sequence[Thing]) -> str:
    """The text that `read` reads; things are told in the order of their rows."""
    told = (f"{t.name} {t.size} at {t.x} {t.y}" for t in sorted(things, key=lambda t: (t.y, t.x)))
    return f"Scene of {side}: {'; '.join(told)}"


def read(text: str) -> tuple[int, list[Thing]]:
    """Side and things of a description. Raises ValueError for a text that describes no scene."""
    match = TEXT.fullmatch(text)
    told = [THING.fullmatch(x) for x in match[2].split("; ")] if match and match[2] else []
    if match is None or not all(told):
        raise ValueError(f"{text[:80]!r} describes no scene: write 'Scene of 32: red square 6 at 1 2; ...'")
    side = int(match[1])
    things = [Thing(m[1], m[2], int(m[3]), int(m[4]), int(m[5])) for m in told if m]
    for t in things:
        known = t.colour in COLOURS and t.shape in SHAPES and t.size in SIZES
        if not known or side % CELL or max(t.x, t.y) >= side // CELL:
            raise ValueError(
                f"{text[:80]!r} has a {t.name} {t.size} at {t.x} {t.y}: colours are {', '.join(COLOURS)}, shapes "
                f"{', '.join(SHAPES)}, sizes 4 and 6, and columns and rows below side / {CELL}"
            )
    return side, things


def mask(shape: str, size: int) -> np.ndarray:
    """[size, size] bool."""
    y, x = np.mgrid[:size, :size]
    if shape == "square":
        return np.ones((size, size), dtype=bool)
    if shape == "ring":
        return (x == 0) | (y == 0) | (x == size - 1) | (y == size - 1)
    if shape == "cross":
        return (abs(2 * x - size + 1) <= 1) | (abs(2 * y - size + 1) <= 1)
    return abs(2 * x - size + 1) <= 2 * (y // 2) + 1


def pixels(side: int, things: Sequence[Thing]) -> np.ndarray:
    """[side, side, 3] uint8."""
    out = np.full((side, side, 3), GROUND, dtype=np.uint8)
    for t in things:
        left, top, right, bottom = t.box
        out[top:bottom, left:right][mask(t.shape, t.size)] = COLOURS[t.colour]
    return out


def draw(description: str) -> list[np.ndarray]:
    """The picture of a description, in a list. Raises ValueError for a text that describes no scene."""
    return [pixels(*read(description))]


def seen(picture: np.ndarray) -> list[Thing]:
    """The things in the pixels of a scene [S, S, 3] uint8, by rows. Raises ValueError for a cell whose pixels are no
    thing of these."""
    out = []
    for y in range(picture.shape[0] // CELL):
        for x in range(picture.shape[1] // CELL):
            cell = picture[CELL * y : CELL * (y + 1), CELL * x : CELL * (x + 1)]
            on = (cell != GROUND).any(axis=2)
            if on.any():
                out.append(_thing(cell, on, x, y))
    return out


def _thing(cell: np.ndarray, on: np.ndarray, x: int, y: int) -> Thing:
    inks = set(map(tuple, cell[on].tolist()))
    names = [name for name, rgb in COLOURS.items() if rgb in inks]
    rows, columns = np.flatnonzero(on.any(axis=1)), np.flatnonzero(on.any(axis=0))
    size = int(rows[-1] - rows[0] + 1)
    if len(inks) != 1 or not names or size not in SIZES or size != columns[-1] - columns[0] + 1:
        raise ValueError(f"the cell in column {x}, row {y} of a scene shows no shape of one known colour")
    top, bottom = on[rows[0], columns[0]], on[rows[-1], columns[0]]
    centre = on[rows[0] + size // 2, columns[0] + size // 2]
    shape = "cross" if not bottom else "triangle" if not top else "square" if centre else "ring"
    return Thing(names[0], shape, size, x, y)
