"""A way over a transit map, leg by leg, scored whole and in detail.

RewardMap, "Tackling Sparse Rewards in Fine-grained Visual Reasoning via Multi-Stage Reinforcement Learning", 2025: parts of
a route answer earn parts of the reward. Its details are known from memory; which parts there are is our reading.

The question describes a map in its first line (synth/scenes/maps.py). A leg is where it begins, the line, and where it ends,
"0 0 red 2 0"; several are parted by ";". A way is right (value 1) if it begins and ends where asked, each leg runs between
two stations of its line, each begins where the last one ended, and no way has fewer legs. parts:

    origin, destination   1 where the first leg begins, the last one ends, as asked
    lines, changes        2 * both / (given + wanted) of the names of lines, and of the stations where one changes,
                          against the reference; 1 where neither has any
    legs                  1 if as many as in the reference
    detailed              1: this answer has details
    drawn, wanted_changes lines on the map, changes of the reference: how hard it is
"""

from __future__ import annotations

import re

from synth.scenes.maps import Leg, read, stations, tracks_of, way
from synth.types import Problem, Score, Scored, Unscorable
from synth.verify import UNPARSABLE

FORM = "literal"
GIVES = ("origin", "destination", "lines", "changes", "legs", "detailed", "drawn", "wanted_changes")
EXAMPLE = {
    "prompt": "Map of 32: blue 1 0, 1 1; red 0 0, 1 0, 2 0\nHow does one get from 0 0 to 1 1?",
    "answer": "0 0 red 1 0; 1 0 blue 1 1",
}
MOST = 12  # legs of an answer
_LEG = re.compile(r" *([0-9]{1,2}) ([0-9]{1,2}) ([a-z]{1,20}) ([0-9]{1,2}) ([0-9]{1,2}) *")


def legs_of(text: str) -> list[Leg] | None:
    """The legs of a text; None where it is no list of up to MOST of them."""
    if len(text) > 40 * MOST:
        return None
    matches = [_LEG.fullmatch(part) for part in text.split(";")]
    if len(matches) > MOST or not all(matches):
        return None
    return [((int(m[1]), int(m[2])), m[3], (int(m[4]), int(m[5]))) for m in matches if m]


def transit(problem: Problem, answer: str) -> Score:
    gold = legs_of(problem.answer)
    try:
        _, lines = read(problem.question.partition("\n")[0])
    except ValueError as e:
        return Unscorable(reason=f"bad_reference: {e}")
    tracks = {name: tracks_of(stops) for name, stops in lines.items()}
    best = way(tracks, gold[0][0], gold[-1][2]) if gold else None
    if not gold or best is None or not _runs(gold, tracks) or len(gold) != len(best):
        return Unscorable(reason=f"bad_reference: {problem.answer!r} is no shortest way on the map")
    if not (given := legs_of(answer)):
        return UNPARSABLE
    ends = [gold[0][0], gold[-1][2]]
    right = [given[0][0], given[-1][2]] == ends and _runs(given, tracks) and len(given) == len(gold)
    parts = {
        "origin": float(given[0][0] == ends[0]),
        "destination": float(given[-1][2] == ends[1]),
        "lines": 1.0 if right else _both({n for _, n, _ in given}, {n for _, n, _ in gold}),
        "changes": 1.0 if right else _both({to for *_, to in given[:-1]}, {to for *_, to in gold[:-1]}),
        "legs": float(len(given) == len(gold)),
    }
    known = {"parsed": 1.0, "detailed": 1.0, "drawn": float(len(lines)), "wanted_changes": len(gold) - 1.0}
    return Scored(value=float(right), parts={**known, **parts})


def _runs(legs: list[Leg], tracks: dict) -> bool:
    """Whether each leg runs on its line, to another station, from where the last one ended."""
    on = {name: stations(of) for name, of in tracks.items()}
    whole = all(a != b and {a, b} <= on.get(name, set()) for a, name, b in legs)
    return whole and all(a[2] == b[0] for a, b in zip(legs, legs[1:], strict=False))


def _both(given: set, wanted: set) -> float:
    return 2 * len(given & wanted) / (len(given) + len(wanted)) if given or wanted else 1.0
