"""Pairs whose chosen side scores lower: LLM-Judge-R/F and RwGap-R/F of PrefCleanBench (arXiv:2509.23564, 2025).

    m = mean over models of score(chosen) - score(rejected)
    share = 0    act where m < 0; ties stay                         (a judge's ratings, one model)
    share = p    act on the floor(p n) pairs with the lowest m      (reward models trained on the same data, p in {.1,
                 .2, .3, .4})

A model that was trained on the pair itself repeats its label; the scores should come from models that did not see it.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.preferences.cleaners._columns import Action, gap, lowest, verdict
from synth.types import Decision, PreferencePair

NEEDS = {"scores"}


def score_gap(
    pairs: Sequence[PreferencePair], *, share: float = 0.0, action: Action = "remove", column: str = "scores"
) -> Sequence[Decision]:
    """Decision `action` with reason low_gap, else "keep"; score = m. Raises ValueError where a pair lacks scores, or
    for a share >= 1."""
    gaps = [gap(pair, column) for pair in pairs]
    low = lowest(pairs, gaps, share) if share else {i for i, m in enumerate(gaps) if m < 0}
    return [verdict("score_gap", i in low, action, ("low_gap", "gap_plausible"), m) for i, m in enumerate(gaps)]
