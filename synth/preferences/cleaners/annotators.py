"""Pairs that annotators disagree with, weighted by how often each annotator is right: majority, weighted vote,
Dawid-Skene, GLAD, with anchors.

The models are defined in `_annotators.py`: Dawid and Skene, "Maximum likelihood estimation of observer error-rates
using the EM algorithm" (1979); Whitehill et al., "Whose vote should count more" (2009).

Anchors are pairs whose label is proven right or wrong (column `anchor`, or a verified margin). Only they distinguish a
good majority from a bad one. With few anchors, Dawid-Skene does best if annotators err independently, and the weighted
vote, which learns from the anchors alone, if they make the same errors. The default `auto` uses the weighted vote if
they agree by more than `excess` above what independent errors allow (`dependence`), else Dawid-Skene. Without any
anchor, truth and its opposite explain the votes equally well; the cleaner then trusts the majority, says so in its
reasons, and if the agreement is in excess it asks instead of acting: not_identifiable. No excess is no proof of
independence: annotators who share all of their errors look like annotators who make none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from synth.preferences.cleaners._annotators import MODELS, dependence, weighted
from synth.preferences.cleaners._columns import Action, anchor, votes
from synth.types import Decision, PreferencePair

NEEDS = {"votes"}


def annotators(
    pairs: Sequence[PreferencePair],
    *,
    model: Literal["auto", "majority", "weighted", "dawid_skene", "glad"] = "auto",
    action: Action = "remove",
    threshold: float = 0.5,
    excess: float = 0.03,
) -> Sequence[Decision]:
    """Decision `action` where the probability that the label is right is below `threshold`, else "keep"; score = that
    probability.

    Reasons: label_unlikely, label_likely, proven_wrong, proven_right, no_votes; not_identifiable with "ask". Raises
    ValueError where a pair lacks votes, or for an unknown model.
    """
    if model not in MODELS and model != "auto":
        raise ValueError(f"annotators has no model {model!r}: write auto, or one of {', '.join(MODELS)}")
    if not pairs:
        return []
    cast = [votes(pair) for pair in pairs]
    names = {name: j for j, name in enumerate(sorted({name for v in cast for name in v}))}
    table = np.zeros((len(pairs), len(names)))
    for i, given in enumerate(cast):
        for name, vote in given.items():
            table[i, names[name]] = vote
    known = np.array([anchor(pair) for pair in pairs])
    order = sorted(
        range(len(pairs)), key=lambda i: pairs[i].id
    )  # sums of floats depend on the order of rows: by id it is always the same
    p = np.empty(len(pairs))
    p[order] = fitted(table[order], known[order], model, excess)
    note, blocked = ("", False) if known.any() else _warning(table[order], p[order], excess)
    return [
        _decision(x, k, bool(v.any()), threshold, action, note, blocked)
        for x, k, v in zip(p, known, table, strict=True)
    ]


def fitted(table: np.ndarray, known: np.ndarray, model: str, excess: float) -> np.ndarray:
    """[n] probability that the label is right, by a model of `MODELS`, or the one that `auto` takes; table [n, A],
    known [n]."""
    if model == "auto":
        seen, implied = dependence(table, weighted(table, np.zeros(len(table))))
        model = "weighted" if seen > implied + excess else "dawid_skene"
    return MODELS[model](table, known)


def _warning(table: np.ndarray, p: np.ndarray, excess: float) -> tuple[str, bool]:
    """(what reasons add without anchors, whether acting is blocked)."""
    seen, implied = dependence(table, p)
    if seen > implied + excess:
        return (
            f": no anchors, and annotators agree in {seen:.2f} of votes where independent errors give {implied:.2f}",
            True,
        )
    return ": no anchors, most annotators are believed to be right", False


def _decision(
    p: float, known: int, voted: bool, threshold: float, action: Action, note: str, blocked: bool
) -> Decision:
    if known:
        acts, reason = known < 0, "proven_wrong" if known < 0 else "proven_right"
    elif not voted:
        acts, reason = False, "no_votes"
    else:
        acts = bool(p < threshold)
        reason = ("not_identifiable" if blocked else "label_unlikely" if acts else "label_likely") + note
        action = "ask" if blocked else action
    return Decision(step="annotators", action=action if acts else "keep", reason=reason, score=float(p))
