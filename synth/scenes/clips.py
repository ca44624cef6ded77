"""Short clips of shapes that move, show for a while, or flash: a description as text, its frames, and what can be read
from the frames.

    Clip of 32 in 4 frames: red square 0 1 6, 1 1 6, -, 2 1 6; blue ring -, -, 3 3 4, 3 3 4

Each thing of a clip has one entry per frame: the column and row of its cell and its size (synth/scenes/scenes.py), or
"-" where it is not shown. A frame is a scene. `tracks_seen` reads the tracks from the pixels alone, frame by frame.
Frames are counted from 1 wherever a question or an answer counts them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from synth.scenes.scenes import CELL, COLOURS, SHAPES, SIZES, Thing, pixels, seen

TEXT = re.compile(r"Clip of (\d+) in (\d+) frames: (.*)")
TRACK = re.compile(r"(\w+ \w+) (.*)")
MOST = 64  # frames of a clip
Spot = tuple[int, int, int]  # column and row of a cell, and a size in pixels
Track = tuple[Spot | None, ...]  # of one thing, an entry per frame
FORM = "write 'Clip of 32 in 3 frames: red square 0 1 6, 1 1 6, -; ...'"


def describe(side: int, tracks: Mapping[str, Track]) -> str:
    """The text that `read` reads, things in the order of their names. tracks: name of a thing, "red square" -> track."""
    told = (
        f"{name} {', '.join('-' if s is None else ' '.join(map(str, s)) for s in tracks[name])}"
        for name in sorted(tracks)
    )
    return f"Clip of {side} in {len(next(iter(tracks.values())))} frames: {'; '.join(told)}"


def read(text: str) -> tuple[int, dict[str, Track]]:
    """Side and tracks of a description. Raises ValueError for a text that describes no clip, one without frames
    included."""
    match = TEXT.fullmatch(text)
    told = [TRACK.fullmatch(x) for x in match[3].split("; ")] if match else []
    if match is None or not all(told):
        raise ValueError(f"{text[:80]!r} describes no clip: {FORM}")
    side, frames = int(match[1]), int(match[2])
    if not 1 <= frames <= MOST or side % CELL or not side:
        raise ValueError(
            f"{text[:80]!r} has {frames} frames of side {side}: 1 to {MOST} frames, and sides of {CELL}, {2 * CELL}, ..."
        )
    tracks: dict[str, Track] = {}
    for m in told:
        if m is None:
            continue
        colour, shape = m[1].split()
        spots = tuple(_spot(x, side, text) for x in m[2].split(", "))
        if colour not in COLOURS or shape not in SHAPES or len(spots) != frames or m[1] in tracks:
            raise ValueError(
                f"{text[:80]!r}: the {m[1]} is told twice, is no shape of synth/scenes/scenes.py, or has {len(spots)} entries for {frames} frames"
            )
        tracks[m[1]] = spots
    return side, tracks


def _spot(text: str, side: int, whole: str) -> Spot | None:
    if text == "-":
        return None
    match = re.fullmatch(r"(\d+) (\d+) (\d+)", text)
    spot = (int(match[1]), int(match[2]), int(match[3])) if match else (side, side, 0)
    if max(spot[:2]) >= side // CELL or spot[2] not in SIZES:
        raise ValueError(f"{whole[:80]!r} has the entry {text[:20]!r}: {FORM}")
    return spot


def frames(side: int, tracks: Mapping[str, Track]) -> list[np.ndarray]:
    """The frames [side, side, 3] uint8, in order."""
    n = len(next(iter(tracks.values())))
    shown: list[list[Thing]] = [[] for _ in range(n)]
    for name, track in tracks.items():
        colour, shape = name.split()
        for things, spot in zip(shown, track, strict=True):
            if spot:
                things.append(Thing(colour, shape, spot[2], spot[0], spot[1]))
    return [pixels(side, things) for things in shown]


def draw(description: str) -> list[np.ndarray]:
    """The frames of a description. Raises ValueError for a text that describes no clip."""
    return frames(*read(description))


def tracks_seen(shown: Sequence[np.ndarray]) -> dict[str, Track]:
    """The track of each thing in the pixels of frames, by name. Raises ValueError for frames that show anything else, or
    the same thing twice."""
    tracks: dict[str, list[Spot | None]] = {}
    for i, frame in enumerate(shown):
        for thing in seen(frame):
            track = tracks.setdefault(thing.name, [None] * len(shown))
            if track[i] is not None:
                raise ValueError(f"frame {i + 1} shows a {thing.name} twice")
            track[i] = (thing.x, thing.y, thing.size)
    return {name: tuple(track) for name, track in tracks.items()}


def runs(track: Track) -> list[tuple[int, int]]:
    """The first and last frame, from 1, of each time that a thing is shown without a break."""
    out: list[tuple[int, int]] = []
    for i, spot in enumerate(track, 1):
        if spot is not None:
            out[-1:] = [(out[-1][0], i)] if out and out[-1][1] == i - 1 else [*out[-1:], (i, i)]
    return out


def direction(track: Track) -> str:
    """left, right, up or down: from where a thing is first shown to where it is last shown; "" for no way or two."""
    spots = [s for s in track if s is not None]
    across, down = (spots[-1][k] - spots[0][k] for k in (0, 1))
    if bool(across) == bool(down):
        return ""
    return ("right" if across > 0 else "left") if across else ("down" if down > 0 else "up")


def jumps(track: Track) -> int:
    """How often a thing goes further than to the next cell between two frames that show it."""
    spots = [s for s in track if s is not None]
    return sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) > 1 for a, b in zip(spots, spots[1:], strict=False))
