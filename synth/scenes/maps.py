"""Small transit maps of coloured lines and stations: a description as text, its pixels, and the shortest ways on it.

    Map of 32: red 0 0, 1 0, 1 1; blue 1 1, 2 1, 2 2

A map is a grid of cells of 8 x 8 pixels (synth/scenes/scenes.py). A line runs from station to station, each in the middle of
a cell beside the last one's; where two lines stop at one station one can change. No two lines share a track. `tracks_seen`
reads the tracks from the pixels alone, and `ways` plans on tracks, so an answer can be proved from what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from synth.scenes.scenes import CELL, COLOURS, GROUND

TEXT = re.compile(r"Map of (\d+): (.*)")
LINE = re.compile(r"(\w+) (\d+ \d+(?:, \d+ \d+)+)")
INK = (20, 20, 20)
MIDDLE = CELL // 2 - 1  # first of the two rows and columns of pixels that a station and a track fill
Stop = tuple[int, int]  # column and row of a cell
Track = tuple[Stop, Stop]  # between two stations, the smaller first
Leg = tuple[Stop, str, Stop]  # from, line, to
FORM = "write 'Map of 32: red 0 0, 1 0, 1 1; blue 1 1, 2 1'"


def describe(side: int, lines: Mapping[str, Sequence[Stop]]) -> str:
    """The text that `read` reads, lines in the order of their names."""
    told = (f"{name} {', '.join(f'{x} {y}' for x, y in lines[name])}" for name in sorted(lines))
    return f"Map of {side}: {'; '.join(told)}"


def read(text: str) -> tuple[int, dict[str, list[Stop]]]:
    """Side and lines of a description. Raises ValueError for a text that describes no map."""
    match = TEXT.fullmatch(text)
    told = [LINE.fullmatch(x) for x in match[2].split("; ")] if match else []
    if match is None or not all(told):
        raise ValueError(f"{text[:80]!r} describes no map: {FORM}")
    side = int(match[1])
    lines = {m[1]: [(int(x), int(y)) for x, y in (s.split() for s in m[2].split(", "))] for m in told if m}
    laid = [track for stops in lines.values() for track in tracks_of(stops)]
    far = max(v for stops in lines.values() for stop in stops for v in stop)
    steps = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in laid]
    if side % CELL or far >= side // CELL or set(steps) != {1} or len(set(laid)) < len(laid) or len(lines) < len(told):
        raise ValueError(
            f"{text[:80]!r} has a line that leaves the map, jumps, or shares a track, or one that is told twice: {FORM}"
        )
    if unknown := [name for name in lines if name not in COLOURS]:
        raise ValueError(f"{text[:80]!r}: no colour {unknown[0]}: name {', '.join(COLOURS)}")
    return side, lines


def tracks_of(stops: Sequence[Stop]) -> list[Track]:
    """The tracks of a line, in its order."""
    return [(min(a, b), max(a, b)) for a, b in zip(stops, stops[1:], strict=False)]


def pixels(side: int, lines: Mapping[str, Sequence[Stop]]) -> np.ndarray:
    """[side, side, 3] uint8."""
    out = np.full((side, side, 3), GROUND, dtype=np.uint8)
    for name, stops in lines.items():
        for (ax, ay), (bx, by) in tracks_of(stops):
            left, top, right, bottom = (CELL * v + MIDDLE for v in (ax, ay, bx, by))
            out[top : bottom + 2, left : right + 2] = COLOURS[name]
    for x, y in {stop for stops in lines.values() for stop in stops}:
        top, left = CELL * y + MIDDLE, CELL * x + MIDDLE
        out[top : top + 2, left : left + 2] = INK
    return out


def draw(description: str) -> list[np.ndarray]:
    """The picture of a description, in a list. Raises ValueError for a text that describes no map."""
    return [pixels(*read(description))]


def tracks_seen(picture: np.ndarray) -> dict[str, set[Track]]:
    """The tracks of each line in the pixels of a map [S, S, 3] uint8. Raises ValueError for a track of no known colour, and
    for one that ends at no station."""
    cells = picture.shape[0] // CELL
    names = {rgb: name for name, rgb in COLOURS.items()}
    tracks: dict[str, set[Track]] = {}
    for y in range(cells):
        for x in range(cells):
            for bx, by in ((x + 1, y), (x, y + 1)):
                row, column = CELL * (y + by) // 2 + MIDDLE, CELL * (x + bx) // 2 + MIDDLE  # half way
                if max(bx, by) >= cells or (rgb := _at(picture, row, column)) == (GROUND,) * 3:
                    continue
                ends = [_at(picture, CELL * v + MIDDLE, CELL * u + MIDDLE) for u, v in ((x, y), (bx, by))]
                if rgb not in names or ends != [INK, INK]:
                    raise ValueError(
                        f"the track from {x} {y} to {bx} {by} of a map has no known colour, or ends nowhere"
                    )
                tracks.setdefault(names[rgb], set()).add(((x, y), (bx, by)))
    return tracks


def _at(picture: np.ndarray, row: int, column: int) -> tuple[int, int, int]:
    r, g, b = (int(v) for v in picture[row, column])
    return r, g, b


def stations(tracks: Iterable[Track]) -> set[Stop]:
    """Where tracks begin and end."""
    return {stop for track in tracks for stop in track}


def way(tracks: Mapping[str, Iterable[Track]], start: Stop, goal: Stop) -> list[Leg] | None:
    """A way with the fewest legs from one station to another, by breadth; [] where they are one, None where there is
    none. Of equally short ways the one by the line and to the station that come first."""
    stops = {name: sorted(stations(tracks[name])) for name in sorted(tracks)}
    routes: dict[Stop, list[Leg]] = {start: []}
    front = [start]
    while front:
        if goal in routes:
            return routes[goal]
        later = []
        for here in front:
            for name, there in ((n, s) for n, of in stops.items() if here in of for s in of):
                if there not in routes:
                    routes[there] = [*routes[here], (here, name, there)]
                    later.append(there)
        front = later
    return routes.get(goal)
