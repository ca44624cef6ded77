"""Questions about short clips, which the environment `look` shows frame by frame: which way something moves, what comes
first, in which frames it is shown, what flashes, and how good a clip is.

The question describes the clip in its first line (synth/scenes/clips.py) and asks in its last. Certificate: the answer
from the values that the clip was made with, against the answer read from the pixels of its frames. Difficulty axis:
frames (a clip that is rated always has eight, one with a flash twice as many)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from synth.families._sample import Refused, item, kind_of
from synth.scenes import parts
from synth.scenes.clips import Spot, Track, describe, direction, draw as frames_of, jumps, runs, tracks_seen
from synth.scenes.scenes import COLOURS, SHAPES, SIZES
from synth.types import Problem, Quarantined, Split

LADDER = ({"frames": 4}, {"frames": 6}, {"frames": 8})
CERTIFICATE = ("values", "pixels")
SIDE = 32
CELLS = 4
WAYS = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
ASKS = ("direction", "first", "when", "flash", "rate")
ASKED = {
    "direction": re.compile(r"Which way does the (\w+ \w+) move\?"),
    "first": re.compile(r"Which appears first, the (\w+ \w+) or the (\w+ \w+)\?"),
    "when": re.compile(r"In which frames is the (\w+ \w+) shown\?"),
    "flash": re.compile(r"The (\w+ \w+) is larger after the flash\. Which colour flashes\?"),
    "rate": re.compile(r"Caption: a (\w+) (\w+) moves (\w+)\. Rate looks, caption and motion\."),
}
Spec = tuple[dict[str, Track], str, str]  # tracks, what is asked, the answer by construction


def clip_questions(
    seed: int,
    split: Split,
    index: int,
    *,
    levels: Sequence[int] = (1,),
    asks: Sequence[str] = ASKS,
    env: str = "look",
) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from, `asks` the kinds of questions; env "look" shows
    the frames, "single" the description. Raises ValueError for an unknown kind."""
    if not asks or any(a not in ASKED for a in asks):
        raise ValueError(f"clip_questions: asks is {list(asks)}: name some of {', '.join(ASKED)}")

    def drawn(rng: Random, *, frames: int) -> tuple[str, Spec]:
        return draw(rng, frames=frames, asks=asks)

    return item(
        seed,
        split,
        index,
        levels,
        family="clip_questions",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=drawn,
        pose=pose,
        solve=solve,
        env=env,
    )


def draw(rng: Random, *, frames: int, asks: Sequence[str] = ASKS) -> tuple[str, Spec]:
    kind = rng.choice(list(asks))
    tracks, query, answer = MAKERS[kind](rng, frames)
    return f"{describe(SIDE, tracks)}\n{query}", (tracks, query, answer)


def _named(rng: Random, n: int) -> list[str]:
    return [f"{c} {s}" for c, s in rng.sample([(c, s) for c in COLOURS for s in SHAPES], n)]


def _still(rng: Random, frames: int, row: int) -> Track:
    return ((rng.randrange(CELLS), row, rng.choice(SIZES)),) * frames


def moved(rng: Random, steps: Sequence[int], way: str, size: int) -> list[Spot]:
    """Where a thing is in each frame that goes `steps[i]` cells in its way before frame i + 1."""
    dx, dy = WAYS[way]
    total, across = sum(steps), rng.randrange(CELLS)
    start = rng.randrange(CELLS - total)
    along = [start + sum(steps[:i]) for i in range(len(steps) + 1)]
    along = along if dx + dy > 0 else [CELLS - 1 - a for a in along]
    return [(a, across, size) if dx else (across, a, size) for a in along]


def _direction(rng: Random, frames: int) -> Spec:
    (name,), way = _named(rng, 1), rng.choice(list(WAYS))
    steps = [1] * rng.randint(1, CELLS - 1)
    steps += [0] * (frames - 1 - len(steps))
    rng.shuffle(steps)
    return {name: tuple(moved(rng, steps, way, rng.choice(SIZES)))}, f"Which way does the {name} move?", way


def _first(rng: Random, frames: int) -> Spec:
    names, rows = _named(rng, 2), rng.sample(range(CELLS), 2)
    begins = sorted(rng.sample(range(frames), 2))
    tracks = {
        name: (None,) * b + _still(rng, frames - b, row) for name, b, row in zip(names, begins, rows, strict=True)
    }
    a, b = rng.sample(names, 2)
    return tracks, f"Which appears first, the {a} or the {b}?", names[0]


def _when(rng: Random, frames: int) -> Spec:
    names, rows = _named(rng, 2), rng.sample(range(CELLS), 2)
    most = 2 if frames > 4 and rng.random() < 0.7 else 1
    cuts = sorted(rng.sample(range(1, frames + 2), 2 * most))  # begin, the frame after the end, begin, ...
    spans = list(zip(cuts[::2], cuts[1::2], strict=True))
    shown = _still(rng, frames, rows[0])
    track = tuple(s if any(a <= i < b for a, b in spans) else None for i, s in enumerate(shown, 1))
    answer = "; ".join(f"{a}-{b - 1}" for a, b in spans)
    return (
        {names[0]: track, names[1]: _still(rng, frames, rows[1])},
        f"In which frames is the {names[0]} shown?",
        answer,
    )


def _flash(rng: Random, frames: int) -> Spec:
    frames *= 2
    at = rng.randrange(1, frames - 1)
    (x, y), (fx, fy) = rng.sample([(x, y) for x in range(CELLS) for y in range(CELLS)], 2)
    name, flash = _named(rng, 2)
    grows: Track = tuple((x, y, SIZES[i > at]) for i in range(frames))
    once: Track = tuple((fx, fy, SIZES[1]) if i == at else None for i in range(frames))
    query = f"The {name} is larger after the flash. Which colour flashes?"
    return {name: grows, flash: once}, query, flash.split()[0]


def _rate(rng: Random, frames: int) -> Spec:
    frames = 8
    (name,), way = _named(rng, 1), rng.choice(list(WAYS))
    flickers, wrong, leaps = (rng.randint(0, 2) for _ in range(3))
    order = rng.sample(range(1, frames - 1), frames - 2)
    hidden: list[int] = []
    for i in order:
        if len(hidden) < flickers and all(abs(i - h) > 1 for h in hidden):
            hidden.append(i)
    free = [i for i in range(frames - 1) if i not in hidden and i + 1 not in hidden]
    steps, leaping = [0] * (frames - 1), rng.sample(free, leaps)
    goes = [i for i in free if i not in leaping]
    for i in rng.sample(goes, rng.randint(1, min(CELLS - 1, len(goes)))):
        steps[i] = 1
    track: list[Spot | None] = []
    for i, (x, y, size) in enumerate(moved(rng, steps, way, SIZES[1])):
        if sum(k < i for k in leaping) % 2:  # a leap is to the other half, and back
            x, y = (x, (y + 2) % CELLS) if WAYS[way][0] else ((x + 2) % CELLS, y)
        track.append(None if i in hidden else (x, y, size))
    told = [*name.split(), way]
    for k in rng.sample(range(3), wrong):
        told[k] = rng.choice([w for w in (COLOURS, SHAPES, WAYS)[k] if w != told[k]])
    query = f"Caption: a {told[0]} {told[1]} moves {told[2]}. Rate looks, caption and motion."
    return {name: tuple(track)}, query, f"{5 - flickers} {5 - wrong} {5 - leaps}"


MAKERS = {"direction": _direction, "first": _first, "when": _when, "flash": _flash, "rate": _rate}
VERIFIERS = {"when": "segments", "rate": "scores"}


def pose(spec: Spec) -> dict[str, Any]:
    tracks, query, answer = spec
    verifier = VERIFIERS.get(kind_of(query, ASKED, "a clip")[0], "exact")
    return {"prompt": f"{describe(SIDE, tracks)}\n{query}", "answer": answer, "verifier": verifier}


def solve(question: str) -> str:
    """From the pixels of the frames alone."""
    shown, query = parts(question)
    kind, of = kind_of(query, ASKED, "a clip")
    try:
        tracks = tracks_seen(frames_of(shown))
    except ValueError as e:
        raise Refused(f"roundtrip: {e}") from e
    if kind != "rate" and any(name not in tracks for name in of):
        raise Refused(f"not_unique: {', '.join(of)} is not shown")
    if kind == "direction":
        return direction(tracks[of[0]]) or _refuse("no way or two")
    if kind == "first":
        begins = {name: runs(tracks[name])[0][0] for name in of}
        return min(begins, key=lambda name: begins[name]) if len(set(begins.values())) == 2 else _refuse("both")
    if kind == "when":
        return "; ".join(f"{a}-{b}" for a, b in runs(tracks[of[0]]))
    if kind == "flash":
        once = [name for name, track in tracks.items() if sum(s is not None for s in track) == 1]
        return once[0].split()[0] if len(once) == 1 else _refuse(f"{len(once)} flashes")
    if len(tracks) != 1:
        _refuse(f"{len(tracks)} things")
    ((name, track),) = tracks.items()
    wrong = sum(a != b for a, b in zip((*name.split(), _way(track)), of, strict=True))
    return f"{6 - len(runs(track))} {5 - wrong} {5 - jumps(track)}"


def _way(track: Track) -> str:
    """The way of the steps from one cell to the next, leaps aside."""
    spots = [s for s in track if s is not None]
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(spots, spots[1:], strict=False)]
    small = {d for d in steps if abs(d[0]) + abs(d[1]) == 1}
    return next((way for way, d in WAYS.items() if small == {d}), "")


def _refuse(reason: str) -> str:
    raise Refused(f"not_unique: {reason}")
