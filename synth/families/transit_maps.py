"""Questions about small transit maps, which the environment `look` shows as pictures: at which of three places does a line
stop, how many stations has each of two lines, and how does one get from one station to another.

The question describes the map in its first line (synth/scenes/maps.py) and asks in its last. Certificate: the answer from
the lines, against the answer read from the pixels of the drawn map. Difficulty axes: the stage (1 judge, 2 count, 3 plan) and
the lines."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from synth.families._sample import Refused, item
from synth.scenes import parts
from synth.scenes.maps import Stop, describe, pixels, read, stations, tracks_of, tracks_seen, way
from synth.scenes.scenes import CELL, COLOURS
from synth.types import Problem, Quarantined, Split

LADDER = ({"stage": 1, "lines": 2}, {"stage": 2, "lines": 2}, {"stage": 3, "lines": 2}, {"stage": 3, "lines": 3})
CERTIFICATE = ("lines", "pixels")
CELLS = 4
ASKED = (
    re.compile(
        r"Does the (\w+) line stop at (\d+) (\d+), at (\d+) (\d+) and at (\d+) (\d+)\? Answer yes or no for each, in order\."
    ),
    re.compile(
        r"At how many stations does the (\w+) line stop, and at how many the (\w+) line\? Answer with two numbers, in order\."
    ),
    re.compile(r"How does one get from (\d+) (\d+) to (\d+) (\d+)\?"),
)
Lines = Mapping[str, Sequence[Stop]]
Spec = tuple[Lines, str]  # the map, and what is asked


def transit_maps(
    seed: int, split: Split, index: int, *, levels: Sequence[int] = (3,), env: str = "look"
) -> Problem | Quarantined:
    """Problem `index` of a split. `levels` are the levels to draw from: 1 judge, 2 count, 3 and 4 plan; env "look" shows the
    picture, "single" the description."""
    problem = item(
        seed,
        split,
        index,
        levels,
        family="transit_maps",
        ladder=LADDER,
        certificate=CERTIFICATE,
        draw=draw,
        pose=pose,
        solve=solve,
    )
    return replace(problem, env=env) if isinstance(problem, Problem) else problem


def laid(rng: Random, lines: int) -> Lines:
    """Lines of 3 to 5 stations that share no track, each with a station of an earlier one."""
    while True:
        out: dict[str, list[Stop]] = {}
        used: set = set()
        for name in rng.sample(list(COLOURS), lines):
            stops = [(rng.randrange(CELLS), rng.randrange(CELLS))]
            length = rng.randint(3, 5)
            while len(stops) < length:
                x, y = stops[-1]
                near = [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
                free = [
                    s
                    for s in near
                    if 0 <= min(s) and max(s) < CELLS and s not in stops and not used & set(tracks_of([stops[-1], s]))
                ]
                if not free:
                    break
                stops.append(rng.choice(free))
            if len(stops) < length or (out and not any(set(stops) & set(other) for other in out.values())):
                break
            used |= set(tracks_of(stops))
            out[name] = stops
        if len(out) == lines:
            return out


def draw(rng: Random, *, stage: int, lines: int) -> tuple[str, Spec]:
    shown = laid(rng, lines)
    name = rng.choice(sorted(shown))
    if stage == 1:
        a, b, c = (f"{x} {y}" for x, y in _places(rng, shown, name))
        query = f"Does the {name} line stop at {a}, at {b} and at {c}? Answer yes or no for each, in order."
    elif stage == 2:
        other = rng.choice(sorted(shown.keys() - {name}))
        query = f"At how many stations does the {name} line stop, and at how many the {other} line? Answer with two numbers, in order."
    else:
        a, b = rng.sample(sorted({s for of in shown.values() for s in of}), 2)
        query = f"How does one get from {a[0]} {a[1]} to {b[0]} {b[1]}?"
    return f"{describe(CELL * CELLS, shown)}\n{query}", (shown, query)


def _places(rng: Random, lines: Lines, name: str) -> list[Stop]:
    """Three places, each with equal chances a station of the line `name` or none of its own: a station of another line,
    or a place without any where those are too few."""
    others = sorted({s for of in lines.values() for s in of} - set(lines[name]))
    empty = [(x, y) for x in range(CELLS) for y in range(CELLS) if (x, y) not in others and (x, y) not in lines[name]]
    own, foreign = rng.sample(lines[name], 3), (rng.sample(others, len(others)) + rng.sample(empty, 3))[:3]
    return [own[i] if rng.random() < 0.5 else foreign[i] for i in range(3)]


def _asked(match: re.Match[str]) -> list[Stop]:
    """The three places of a question whether a line stops there."""
    numbers = [int(n) for n in match.groups()[1:]]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def pose(spec: Spec) -> dict[str, Any]:
    lines, query = spec
    tracks = {name: tracks_of(stops) for name, stops in lines.items()}
    if match := ASKED[0].fullmatch(query):
        answer = " ".join("yes" if place in lines[match[1]] else "no" for place in _asked(match))
        verifier = "ordered_list"
    elif match := ASKED[1].fullmatch(query):
        answer, verifier = f"{len(lines[match[1]])} {len(lines[match[2]])}", "ordered_list"
    else:
        answer, verifier = _way(tracks, query), "transit"
    return {"prompt": f"{describe(CELL * CELLS, lines)}\n{query}", "answer": answer, "verifier": verifier}


def _way(tracks: Mapping[str, Any], query: str) -> str:
    match = ASKED[2].fullmatch(query)
    if match is None:
        raise Refused(f"roundtrip: {query!r} asks nothing about a map")
    ax, ay, bx, by = map(int, match.groups())
    legs = way(tracks, (ax, ay), (bx, by))
    if not legs:
        raise Refused(f"impossible: no way from {ax} {ay} to {bx} {by}")
    return "; ".join(f"{a[0]} {a[1]} {name} {b[0]} {b[1]}" for a, name, b in legs)


def solve(question: str) -> str:
    """From the pixels of the map alone."""
    shown, query = parts(question)
    try:
        tracks = tracks_seen(pixels(*read(shown)))
    except ValueError as e:
        raise Refused(f"roundtrip: {e}") from e
    if match := ASKED[0].fullmatch(query):
        stops = stations(tracks.get(match[1], ()))
        return " ".join("yes" if place in stops else "no" for place in _asked(match))
    if match := ASKED[1].fullmatch(query):
        return " ".join(str(len(stations(tracks.get(name, ())))) for name in match.groups())
    return _way(tracks, query)
