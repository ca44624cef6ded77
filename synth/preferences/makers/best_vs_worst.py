"""Samples of one problem, verified: a right one against a wrong one; on-policy where `generate` is the model that will
be trained.

match "none"     the first right and the first wrong sample that were drawn
match "length"   of all right and wrong ones the two whose lengths differ least: length tells nothing    (length-matched
                 pairs)
match "prefix"   the two that begin alike the longest: what parts them is the error                      (near-miss
                 pairs)
"""

from __future__ import annotations

from typing import Literal

from synth.preferences.makers._made import ask, first_difference, made, quarantined, right
from synth.types import Generate, PreferencePair, Problem, Quarantined


def best_vs_worst(
    seed: int,
    problem: Problem,
    index: int,
    generate: Generate,
    *,
    samples: int = 8,
    match: Literal["none", "length", "prefix"] = "none",
) -> PreferencePair | Quarantined:
    """Quarantined as all_right, all_wrong or unscorable if there is no contrast. Raises ValueError for another
    match."""
    if match not in ("none", "length", "prefix"):
        raise ValueError(f"best_vs_worst has no match {match!r}: write none, length or prefix")
    texts = ask(generate, problem.prompt, samples, seed, "best_vs_worst", problem.id, index)
    verdicts = [right(problem, t) for t in texts]
    good = [t for t, v in zip(texts, verdicts, strict=True) if v]
    bad = [t for t, v in zip(texts, verdicts, strict=True) if v is False]
    if not good or not bad:
        reason = "unscorable" if not good and not bad else "all_wrong" if not good else "all_right"
        return quarantined(problem, index, reason, f"{len(good)} of {samples} samples are right: {texts[0]!r}")
    distance = {
        "none": lambda c, r: 0,
        "length": lambda c, r: abs(len(c) - len(r)),
        "prefix": lambda c, r: -first_difference(c, r),
    }[match]
    chosen, rejected = min(((c, r) for c in good for r in bad), key=lambda two: distance(*two))
    return made(problem, "best_vs_worst", chosen, rejected, rate=len(good) / samples)
