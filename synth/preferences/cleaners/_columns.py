"""The columns that cleaners read, how they are checked, and how they change when the sides of a pair are swapped.

    scores       {model: [of the chosen side, of the rejected side]}      higher is better
    ifd          [of the chosen side, of the rejected side]               instruction-following difficulty
    votes        {annotator: 1 | -1 | 0}                                  1 = the chosen side is better, 0 = a tie or an
                 abstention
    both_orders  {judge: [vote shown as is, vote shown swapped]}          votes as above, each about the chosen side
    out_of_fold  probability that the chosen side is better, by a model that saw no pair of the same group
    out_of_fold_blind   the same by a model that is blind to length and style
    overlap      the greatest share of the pair's n-grams in a protected text
    anchor       1 = the label is proven right, -1 = proven wrong; a pair with a verified margin is an anchor without it
    anchor_asked     true if the label was proven because a cleaner asked about it: such an anchor is not representative
    tags         [tag, ...] of the prompt
    features     {name: [of the chosen side, of the rejected side]}
    group, annotator   the sibling group of a pair, and its annotator

Every reader raises ValueError with the pair, the column and the expected form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from synth.types import Decision, PreferencePair

Action = Literal["remove", "flip", "ask", "weight"]


def swap_sides(pair: PreferencePair) -> PreferencePair:
    """The pair with its sides swapped, together with all columns about sides. Swapping twice gives the original
    pair."""
    columns = {name: _TURNS[name](value) if name in _TURNS else value for name, value in pair.columns.items()}
    margin = None if pair.margin is None else -pair.margin
    return replace(pair, chosen=pair.rejected, rejected=pair.chosen, margin=margin, columns=columns)


def _swapped(value: Any) -> Any:
    return {k: _swapped(v) for k, v in value.items()} if isinstance(value, Mapping) else list(value)[::-1]


def _negated(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _negated(v) for k, v in value.items()}
    return [_negated(v) for v in value] if isinstance(value, list | tuple) else -value


_TURNS = {
    "scores": _swapped,
    "ifd": _swapped,
    "features": _swapped,
    "votes": _negated,
    "both_orders": _negated,
    "anchor": _negated,
    "out_of_fold": lambda p: 1 - p,
    "out_of_fold_blind": lambda p: 1 - p,
}


def gap(pair: PreferencePair, column: str) -> float:
    """Chosen minus rejected, averaged over the models of a column of scores; the column may also be one [chosen,
    rejected]."""
    value = pair.columns.get(column)
    both: list[Any] = list(value.values()) if isinstance(value, Mapping) else [value]
    if not both or not all(_two_numbers(x) for x in both):
        raise refusal(pair, column, "{model: [score of chosen, score of rejected]}")
    return sum(c - r for c, r in both) / len(both)


def votes(pair: PreferencePair) -> dict[str, int]:
    """{voter: 1, -1 or 0}. Where the column holds scores, each model votes by the sign of its gap."""
    value = pair.columns.get("votes")
    if isinstance(value, Mapping) and all(_two_numbers(x) for x in value.values()):
        return {name: (c > r) - (c < r) for name, (c, r) in value.items()}
    if not isinstance(value, Mapping) or not all(type(x) is int and x in (-1, 0, 1) for x in value.values()):
        raise refusal(pair, "votes", "{voter: 1, -1 or 0}, where 1 means that the chosen side is better")
    return dict(value)


def probability(pair: PreferencePair, column: str) -> float:
    p = pair.columns.get(column)
    if not isinstance(p, float) or not 0 <= p <= 1:
        raise refusal(pair, column, "a probability")
    return p


def anchor(pair: PreferencePair) -> int:
    """1 where the label is proven right, -1 where it is proven wrong, 0 if nothing is proven. A column `anchor` takes
    precedence over the margin."""
    value = pair.columns.get("anchor", pair.margin or 0)
    if not isinstance(value, int | float) or (isinstance(value, float) and math.isnan(value)):
        raise refusal(pair, "anchor", "1, -1 or 0")
    return (value > 0) - (value < 0)


def drawn_anchor(pair: PreferencePair) -> int:
    """The anchor of a pair that was drawn at random; only these show how many labels are wrong. 0 for a pair that a
    cleaner asked about, because those are the doubtful ones."""
    return 0 if pair.columns.get("anchor_asked") else anchor(pair)


def refusal(pair: PreferencePair, column: str, wanted: str) -> ValueError:
    present = ", ".join(sorted(pair.columns)) or "none"
    given = f"pair {pair.id} has {pair.columns.get(column)!r} in the column {column!r} (its columns: {present})"
    return ValueError(f"{given}: put {wanted} there")


def lowest(
    pairs: Sequence[PreferencePair], values: Sequence[float], share: float, *, among: Sequence[int] | None = None
) -> set[int]:
    """Indices of the floor(share * n) lowest values; ties fall by id, so that the order of rows does not matter."""
    if not 0 <= share < 1:
        raise ValueError(f"the share {share} of pairs to act on must lie in [0, 1)")
    rows = range(len(pairs)) if among is None else among
    ordered = sorted(rows, key=lambda i: (values[i], pairs[i].id))
    return set(ordered[: int(share * len(ordered) + 1e-9)])


def verdict(step: str, acts: bool, action: Action, reasons: tuple[str, str], score: float) -> Decision:
    """`action` with the first of `reasons` if the cleaner acts, else "keep" with the second."""
    return Decision(
        step=step, action=action if acts else "keep", reason=reasons[0] if acts else reasons[1], score=float(score)
    )


def _two_numbers(x: Any) -> bool:
    return isinstance(x, list | tuple) and len(x) == 2 and all(type(v) in (int, float) and math.isfinite(v) for v in x)
