"""Ratings of the two answers of a preference pair: the column `ratings`, {dimension: [chosen, rejected]}."""

from __future__ import annotations

from synth.types import PreferencePair


def rated(pair: PreferencePair) -> dict[str, tuple[float, float]]:
    """Dimension -> the numbers of chosen and rejected; nothing for a pair that nobody rated. Raises ValueError for a rating
    that is no pair of numbers."""
    out = {}
    for name, value in (pair.columns.get("ratings") or {}).items():
        if len(value) != 2 or not all(isinstance(x, int | float) for x in value):
            raise ValueError(
                f"the pair {pair.id} rates {name!r} with {value!r}: a rating is [number of chosen, number of rejected]"
            )
        out[name] = (float(value[0]), float(value[1]))
    return out
