"""Geometry of representations: how many directions the features of a model use, and how their spectrum falls.

"Tracing the Representation Geometry of Language Models from Pretraining to Post-training" (arXiv 2509.23024); RankMe:
Garrido et al. 2023 (arXiv 2210.02885); alpha-ReQ: Agrawal et al. 2022, "Assessing Representation Quality in
Self-Supervised Learning".

    F [N, d] features, centred; sigma_1 >= ... its singular values; lambda_i = sigma_i^2 / N
    rank_me = exp(-sum_i p_i ln p_i),  p_i = sigma_i / sum_j sigma_j        alpha = -slope of ln lambda_i against ln i,
    first <= i <= last

Input: per problem one or more feature vectors of its samples (the final hidden state of the last token of the prompt).
Intervals resample problems; a resample has fewer distinct vectors and so a lower value, and the interval is widened to
include the estimate. Directions below 1e-12 of the largest count as none. alpha is NaN where fewer than three
eigenvalues lie in the range. Leaves out the alignment with n-grams.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, counts, scored_samples


def geometry(
    scored: Sequence[Sequence[float]],
    features: Sequence[Sequence[Sequence[float]]],
    *,
    first: int = 2,
    last: int = 100,
    centre: bool = True,
    level: float = 0.95,
    resamples: int = 50,
    seed: int = 0,
) -> dict[str, Metric]:
    known = [[v for v in f if v is not None] for _, f in scored_samples(scored, features)]
    problems = [np.asarray(f, dtype=np.float64) for f in known if f]
    n = len(problems)
    if not n:
        nan = {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": 0}
        return {"rank_me": nan, "alpha": dict(nan)}
    rows, owner = np.concatenate(problems), np.repeat(np.arange(n), [len(p) for p in problems])
    weights = [np.ones(len(rows)), *(w[owner] for w in counts(n, resamples, seed))]
    spectra = np.array([_both(spectrum(rows, w, centre), first, last) for w in weights])
    return {name: _metric(spectra[:, i], n, level) for i, name in enumerate(("rank_me", "alpha"))}


def spectrum(rows: np.ndarray, weights: np.ndarray, centre: bool = True) -> np.ndarray:
    """Eigenvalues of the covariance of rows [N, d] that count `weights` times, the largest first; never negative."""
    total = weights.sum()
    x = rows - (weights @ rows / total if centre else 0.0)
    values = np.linalg.eigvalsh((x * weights[:, None]).T @ x / total)[::-1]
    return np.maximum(values, 0.0)


def rank_me(eigenvalues: np.ndarray) -> float:
    """The number of directions that would have the same entropy if all were used equally; 0 for constant features."""
    s = np.sqrt(eigenvalues[eigenvalues > 1e-12 * max(eigenvalues[0], 1e-300)])
    if not len(s):
        return 0.0
    p = s / s.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def alpha(eigenvalues: np.ndarray, first: int, last: int) -> float:
    """Exponent of the power law that eigenvalues `first` to `last` (counted from 1) follow, by least squares on
    logarithms."""
    i = np.arange(1, len(eigenvalues) + 1)
    use = (i >= first) & (i <= last) & (eigenvalues > 1e-12 * max(eigenvalues[0], 1e-300))
    if use.sum() < 3:
        return float("nan")
    return float(-np.polyfit(np.log(i[use]), np.log(eigenvalues[use]), 1)[0])


def _both(eigenvalues: np.ndarray, first: int, last: int) -> tuple[float, float]:
    return rank_me(eigenvalues), alpha(eigenvalues, first, last)


def _metric(values: np.ndarray, n: int, level: float) -> Metric:
    value, rest = float(values[0]), values[1:][np.isfinite(values[1:])]
    if not np.isfinite(value) or not len(rest):
        return {"mean": value, "low": value, "high": value, "n": n}
    low, high = np.quantile(rest, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": value, "low": float(min(low, value)), "high": float(max(high, value)), "n": n}
