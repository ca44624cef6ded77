"""Columns of pairs that losses request by name: read from the pairs, or computed if the pairs lack them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import log
from typing import Any

from synth.preferences.cleaning import out_of_fold
from synth.types import PreferencePair
from tasks.core.errors import UserError
from training.preference.units import words

BY_THE_OBJECTIVE = {"history", "baseline", "reliability"}  # from passes and from the loss's own state
FOLDS = 5


def columns(stage: str, pairs: Sequence[PreferencePair], names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Pair id -> {column: value} for the names that are read from pairs.

    margin     the pair's own, or its column; where a pair lacks both, all have the log-odds of a linear reward model
               that was fitted on pairs of other groups (`out_of_fold` of the stage clean)
    weight     the column, or |difference| of the column "process" ([chosen, rejected] shares of right steps) where
               "outcome" is equal or absent; times the score of every decision "weight" that a cleaner made; else 1
    other      the column; else brevity: (words of rejected - words of chosen) / (their sum)
    annotator  a number for every value of the column; 0 without

    Any other name must be a number in every pair's columns. Raises UserError with what was found.
    """
    out: dict[str, dict[str, float]] = {p.id: {} for p in pairs}
    for name in sorted(set(names) - BY_THE_OBJECTIVE):
        for p, value in zip(pairs, VALUES.get(name, _given)(stage, pairs, name), strict=True):
            out[p.id][name] = float(value)
    return out


def margins(stage: str, pairs: Sequence[PreferencePair], name: str = "margin") -> list[float]:
    known = _numbers(p.margin if p.margin is not None else p.columns.get("margin") for p in pairs)
    if len(known) == len(pairs):
        return known
    given = _numbers(p.columns.get("out_of_fold") for p in pairs)
    p = given if len(given) == len(pairs) else out_of_fold(pairs, folds=FOLDS, c=1.0)
    return [log(max(x, 1e-6) / max(1 - x, 1e-6)) for x in p]


def _weights(stage: str, pairs: Sequence[PreferencePair], name: str) -> list[float]:
    return [_weight(p) for p in pairs]


def _weight(p: PreferencePair) -> float:
    w = p.columns.get("weight", 1.0)
    if "weight" not in p.columns and "process" in p.columns and len(set(p.columns.get("outcome", (0, 0)))) == 1:
        w = abs(p.columns["process"][0] - p.columns["process"][1])
    for d in p.decisions:
        w *= d.score if d.action == "weight" else 1.0
    return w


def _others(stage: str, pairs: Sequence[PreferencePair], name: str) -> list[float]:
    if any("other" in p.columns for p in pairs):
        return _given(stage, pairs, name)
    n = [(len(words(p.chosen)), len(words(p.rejected))) for p in pairs]
    return [(b - a) / max(a + b, 1) for a, b in n]


def _annotators(stage: str, pairs: Sequence[PreferencePair], name: str) -> list[int]:
    who = [str(p.columns.get("annotator", "")) for p in pairs]
    number = {w: i for i, w in enumerate(sorted(set(who)))}
    return [number[w] for w in who]


def _given(stage: str, pairs: Sequence[PreferencePair], name: str) -> list[float]:
    values = [p.columns.get(name) for p in pairs]
    if bad := [p for p, v in zip(pairs, values, strict=True) if not _number(v)]:
        present = ", ".join(sorted({k for p in pairs for k in p.columns})) or "none"
        raise UserError(
            f"{stage}: the loss needs the number {name!r} in the columns of every pair, and {bad[0].id} has none; found: {present}: add it, or "
            f"choose another loss"
        )
    return _numbers(values)


def _numbers(values: Iterable[Any]) -> list[float]:
    """The columns whose values are numbers."""
    return [v for v in values if _number(v)]


def _number(x: Any) -> bool:
    return not math.isnan(x) if isinstance(x, float) else isinstance(x, int) and not isinstance(x, bool)


VALUES = {"margin": margins, "weight": _weights, "other": _others, "annotator": _annotators}
