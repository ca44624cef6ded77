"""Annotators whose record looks unlike a person's, and the pairs that only they decide: the pre-screen of
SemanticShield (arXiv:2509.24961, 2025), carried over from shilling attacks on recommenders to votes on pairs.

Per annotator with votes v_ij (1, -1, 0):
    deviation    share of its votes against the majority of the *others* who voted on the pair (a tie counts as half)
    sameness     |mean vote|: always the same place, whatever is shown
    company      greatest agreement with another annotator beyond the mean agreement, over pairs both voted on (copies
    of one account)
    size         |log(number of votes / median number)|
Each is made a z-score over annotators, negative ones count as 0, and they are summed; the floor(share * A) highest sums
above `least` are suspicious. A pair whose majority is another without them is asked about: the screen is cheap and has
false alarms, so it never removes. A majority of attackers is not told from a majority of honest ones by any of this:
that takes anchors (`annotators`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from synth.preferences.cleaners._columns import Action, verdict, votes
from synth.types import Decision, PreferencePair

NEEDS = {"votes"}


def poisoning(
    pairs: Sequence[PreferencePair], *, share: float = 0.3, least: float = 2.0, action: Action = "ask"
) -> Sequence[Decision]:
    """Decision `action` with reason rests_on_suspects: NAMES, else "keep"; score = the margin of votes without the
    suspects, in [-1, 1].

    Raises ValueError where a pair lacks votes, or for a share outside [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"poisoning: the share {share} must lie in [0, 1)")
    cast = [votes(pair) for pair in pairs]
    names = sorted({name for v in cast for name in v})
    order = sorted(range(len(pairs)), key=lambda i: pairs[i].id)
    table = np.array([[cast[i].get(name, 0) for name in names] for i in order], dtype=float).reshape(
        len(pairs), len(names)
    )
    suspicion = suspicions(table)
    ranked = sorted(range(len(names)), key=lambda j: (-suspicion[j], names[j]))
    suspects = {names[j] for j in ranked[: int(share * len(names) + 1e-9)] if suspicion[j] >= least}
    return [_decision(v, suspects, action) for v in cast]


def _decision(cast: dict[str, int], suspects: set[str], action: Action) -> Decision:
    honest = [v for name, v in cast.items() if name not in suspects]
    before, after = sum(cast.values()), sum(honest)
    named = sorted(suspects & cast.keys())
    turned = bool(named) and (before > 0) - (before < 0) != (after > 0) - (after < 0)
    margin = after / len(honest) if honest else 0.0
    return verdict("poisoning", turned, action, (f"rests_on_suspects: {', '.join(named)}", "rests_on_others"), margin)


def suspicions(table: np.ndarray) -> np.ndarray:
    """[A] summed z-scores of annotators from votes [n, A] in {1, -1, 0}."""
    n, a = table.shape
    if a < 3:
        return np.zeros(a)
    cast = np.abs(table)
    count = np.maximum(cast.sum(axis=0), 1)
    others = np.sign(table.sum(axis=1, keepdims=True) - table)
    deviation = (cast * (1 - table * others) / 2).sum(axis=0) / count
    both = cast.T @ cast
    agreement = (both + table.T @ table) / 2 / np.maximum(both, 1)
    np.fill_diagonal(agreement, 0.0)
    mean = agreement.sum() / (a * (a - 1))
    company = agreement.max(axis=1) - mean
    size = np.abs(np.log(count / np.median(count)))
    sameness = np.abs(table.sum(axis=0)) / count
    return sum((np.maximum(_z(x), 0) for x in (deviation, sameness, company, size)), np.zeros(a))


def _z(x: np.ndarray) -> np.ndarray:
    spread = float(x.std())
    return (x - x.mean()) / spread if spread > 1e-12 and math.isfinite(spread) else np.zeros(len(x))
