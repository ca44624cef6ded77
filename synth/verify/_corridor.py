"""A corridor with parcels and two who collect them: what the family errands and the environment corridor share."""

from __future__ import annotations

from collections.abc import Sequence

from synth.verify._told import told

MOVES = {"left": -1, "stay": 0, "right": 1}
SAID = {
    "nearest": "Your partner goes to the nearest parcel, of two the lower",
    "lowest": "Your partner goes to the lowest parcel",
    "highest": "Your partner goes to the highest parcel",
    "still": "Your partner never moves",
}  # rule -> the sentence about it
TEXT = told(SAID, r"corridor of (\d+) cells", r"[Yy]ou are at (\d+)", r"partner at (\d+)", r"parcels at ([\d ]+)")
Now = tuple[int, int, tuple[int, ...]]  # where you are, where the partner is, what is left


def follows(rule: str, at: int, left: Sequence[int]) -> int:
    """Where a partner of this rule goes next, one cell at most."""
    if rule == "still" or not left:
        return at
    aim = {"nearest": min(left, key=lambda x: (abs(x - at), x)), "lowest": min(left), "highest": max(left)}[rule]
    return at + (aim > at) - (aim < at)


def moved(now: Now, rule: str, move: int) -> Now:
    """After a step of both."""
    here, there = now[0] + move, follows(rule, now[1], now[2])
    return here, there, tuple(x for x in now[2] if x not in (here, there))


def fewest(cells: int, now: Now, rule: str) -> int:
    """Steps until nothing is left, by breadth-first search."""
    edge, seen, steps = {now}, set(), 0
    while all(left for _, _, left in edge):
        seen |= edge
        edge = {moved(s, rule, m) for s in edge for m in MOVES.values() if 1 <= s[0] + m <= cells} - seen
        steps += 1
    return steps
