"""Metrics of scored samples, with intervals. One file per metric; `interval` is what they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Metric = dict[str, float]


def interval(values: Sequence[float], *, level: float = 0.95, resamples: int = 2000, seed: int = 0) -> Metric:
    """Mean of one value per problem, and its percentile bootstrap interval over problems (Efron 1979).

    Problems, not samples, are redrawn: the samples of one problem are not independent of each other. NaN values are left out.
    Returns {"mean", "low", "high", "n"}; n problems. NaN throughout where there is none.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    if not len(x):
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": 0}
    rng = np.random.default_rng(seed)
    means = x[rng.integers(0, len(x), (resamples, len(x)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(x.mean()), "low": float(low), "high": float(high), "n": len(x)}


def scorable(samples: Sequence[float]) -> np.ndarray:
    """The samples of one problem that have a score (NaN marks the others)."""
    x = np.asarray(samples, dtype=np.float64)
    return x[~np.isnan(x)]
