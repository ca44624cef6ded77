"""When self-play should stop: there is no gain any more, or the proposals have become bad."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def stop(
    rounds: Sequence[Mapping[str, Any]],
    *,
    patience: int = 3,
    gain: float = 0.005,
    validity: float = 0.8,
    duplicates: float = 0.2,
    least_answers: int = 2,
    gap: float = 0.1,
) -> str:
    """Why to stop after these rounds, "" to continue. Each round has `held` (success on held-out problems, of
    `held_n`), `success`, `validity` and `duplicates` (shares of proposals) and `answers` (how many different ones were
    given); None if it was not measured.

        invalid     less than `validity` of the proposals were valid
        duplicate   more than `duplicates` were known
        collapse    fewer than `least_answers` different answers were given
        memorising  success over held-out success by more than `gap` and growing for `patience` rounds
        flat        the held-out gain over `patience` rounds is below `gain`, and the two 95 % intervals overlap
    """
    last = rounds[-1]
    if last["validity"] < validity:
        return f"invalid: {last['validity']:.0%} of the proposals were valid, {validity:.0%} is the least"
    if last["duplicates"] > duplicates:
        return f"duplicate: {last['duplicates']:.0%} of the proposals were known, {duplicates:.0%} is the most"
    if last["certified"] and last["answers"] < least_answers:
        return f"collapse: {last['answers']} different answer to {last['certified']} problems"
    recent = rounds[-patience - 1 :]
    if len(recent) <= patience or any(r["held"] is None or r["success"] is None for r in recent):
        return ""
    gaps = [r["success"] - r["held"] for r in recent]
    if gaps[-1] > gap and all(b > a for a, b in zip(gaps, gaps[1:])):
        return f"memorising: success is {gaps[-1]:.0%} above that on held-out problems, and the gap grows"
    first, now = recent[0], recent[-1]
    if now["held"] - first["held"] < gain and _width(first) + _width(now) > abs(now["held"] - first["held"]):
        return f"flat: held-out success was {first['held']:.1%} {patience} rounds ago and is {now['held']:.1%}"
    return ""


def _width(round: Mapping[str, Any]) -> float:
    """Half of the 95 % interval of a round's held-out success."""
    p, n = round["held"], max(1, round["held_n"])
    return 1.96 * math.sqrt(p * (1 - p) / n)
