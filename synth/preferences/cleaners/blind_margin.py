"""Label errors found by a detector that is blind to length and style.

A model fitted to labels that follow length learns to prefer length, and then finds every such label plausible. Here the
features named in `BLIND` (`_features.py`: length, number of words, marks of style) take part in the fit, so that they
absorb what they explain, and are excluded from the probability:

    out_of_fold         sigmoid(w . d)              d: features of chosen minus rejected
    out_of_fold_blind   sigmoid(s * w' . d')        w', d' without BLIND; s by maximum likelihood on the other folds'
                        margins

Pairs are then pruned as by `confident_learning`. If length does predict quality, a blind detector knows less: compare
both, and look at the length report (`_length.py`). After "A Long Way to Go" (arXiv:2310.03716, 2023), which measures
the same bias in reward models.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np

from synth.preferences.cleaners._columns import Action, probability, verdict
from synth.preferences.cleaners.confident_learning import prune_pairs
from synth.preferences.cleaners._ranks import Ranks
from synth.preferences.ledger import Verdicts
from synth.types import Decision, PreferencePair

NEEDS = {"out_of_fold_blind"}


def blind_margin(
    pairs: Sequence[PreferencePair], *, action: Action = "remove", share: float = 0.0
) -> Sequence[Decision]:
    """Decision `action` with reason label_error_blind, else "keep"; score = the probability that the label is right,
    length apart.

    share: act on the floor(share n) lowest probabilities; 0: on those that the confident joint prunes. Raises
    ValueError where a pair lacks the column, or for a share outside [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"blind_margin: the share {share} must lie in [0, 1)")
    told, names = array("d"), Ranks()
    for pair in pairs:
        told.append(probability(pair, "out_of_fold_blind"))
        names.add(pair.id)
    right = np.frombuffer(told)
    if not told:
        return []
    order = np.lexsort((names.whole(), right))
    acts = np.zeros(len(pairs), dtype=bool)
    if share:
        acts[order[: int(share * len(pairs) + 1e-9)]] = True
    else:
        acts[order] = prune_pairs(right[order])
    reasons = ("label_error_blind", "label_plausible_blind")
    return Verdicts(
        verdict("blind_margin", w, action, reasons, p) for w, p in zip(map(bool, acts.tobytes()), told, strict=True)
    )
