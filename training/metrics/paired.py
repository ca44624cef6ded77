"""The difference between two models on the same problems.

Paired bootstrap: Efron and Tibshirani 1993, "An Introduction to the Bootstrap"; Koehn 2004, "Statistical Significance
Tests for Machine Translation Evaluation".

    mean over problems of (mean score of `scored` - mean score of `against`)

Input: per problem the sample scores of either model, in the same order of problems; a problem that either could not
score is left out. Returns {"difference": {"mean", "low", "high", "n"}}. Pairing removes the variance between problems,
which is most of it: this interval is far narrower than two separate ones suggest. Raises ValueError where the numbers
of problems differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.metrics import Metric, interval, scorable


def paired(
    scored: Sequence[Sequence[float]],
    against: Sequence[Sequence[float]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    if len(scored) != len(against):
        raise ValueError(
            f"a paired comparison needs the same problems on both sides: {len(scored)} and {len(against)} were given"
        )
    pairs = [(scorable(a), scorable(b)) for a, b in zip(scored, against, strict=True)]
    differences = [a.mean() - b.mean() for a, b in pairs if len(a) and len(b)]
    return {"difference": interval(differences, level=level, resamples=resamples, seed=seed)}
