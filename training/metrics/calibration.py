"""Calibration: does the model know when it is right?

    ece      sum over bins b of (n_b / n) |mean score in b - mean confidence in b|, equal-width bins; Guo et al. 2017
             (arXiv 1706.04599)
    brier    mean (confidence - score)^2; Brier 1950, "Verification of Forecasts"
    aurc     mean over coverages of the error among the most confident share; Geifman and El-Yaniv 2017 (arXiv
             1705.08500)
    right@c  share right among the c most confident samples

Input: per problem its sample scores in [0, 1] and confidences in [0, 1] (NaN confidences are left out with the sample).
Intervals redraw problems. ece is biased upward for few samples, and grows with `bins`; brier is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, counts, of_sums, scored_samples


def calibration(
    scored: Sequence[Sequence[float]],
    confidences: Sequence[Sequence[float]],
    *,
    bins: int = 10,
    coverages: Sequence[float] = (0.5,),
    level: float = 0.95,
    resamples: int = 200,
    seed: int = 0,
) -> dict[str, Metric]:
    problems = []
    for s, c in scored_samples(scored, confidences):
        known = [(a, b) for a, b in zip(s, c, strict=True) if b is not None and not math.isnan(b)]
        if known:
            problems.append(np.array(known, dtype=np.float64))
    more = {"level": level, "resamples": resamples, "seed": seed}
    parts = np.array([_binned(p, bins) for p in problems]).reshape(len(problems), 3 * bins + 2)

    def ece(sums: np.ndarray) -> np.ndarray:
        n, right, sure = (sums[:, i * bins : (i + 1) * bins] for i in range(3))
        return np.abs(right - sure).sum(axis=1) / np.maximum(n.sum(axis=1), 1.0)

    out = {
        "ece": of_sums(parts, ece, **more),
        "brier": of_sums(parts, lambda x: x[:, -2] / np.maximum(x[:, -1], 1.0), **more),
    }
    curve = _coverage(problems, resamples, seed)
    out["aurc"] = _metric(1 - curve.mean(axis=1), len(problems), level)
    for c in coverages:
        out[f"right@{round(100 * c)}%"] = _metric(curve[:, _at(c, curve.shape[1])], len(problems), level)
    return out


def reliability(confidences: Sequence[float], scores: Sequence[float], *, bins: int = 10) -> list[dict[str, float]]:
    """{"confidence", "right", "n"} of every bin that holds a sample: the points of a reliability diagram."""
    n, right, sure = (
        _binned(np.column_stack([scores, confidences]), bins)[i * bins : (i + 1) * bins] for i in range(3)
    )
    return [
        {"confidence": float(c / k), "right": float(r / k), "n": int(k)}
        for k, r, c in zip(n, right, sure, strict=True)
        if k
    ]


def _binned(samples: np.ndarray, bins: int) -> np.ndarray:
    """[3 bins + 2] samples, sum of scores, sum of confidences per bin; then the squared error and the number of
    samples."""
    score, sure = samples[:, 0], samples[:, 1]
    at = np.minimum((sure * bins).astype(int), bins - 1)
    sums = [np.bincount(at, w, minlength=bins) for w in (np.ones(len(at)), score, sure)]
    return np.concatenate([*sums, [((sure - score) ** 2).sum(), len(at)]])


def _coverage(problems: Sequence[np.ndarray], resamples: int, seed: int, points: int = 100) -> np.ndarray:
    """[1 + resamples, points] mean score among the most confident 1/points, 2/points, ... of all samples; row 0 is the
    estimate."""
    if not problems:
        return np.full((1, points), np.nan)
    rows = np.concatenate(problems)
    owner = np.repeat(np.arange(len(problems)), [len(p) for p in problems])
    order = np.argsort(-rows[:, 1], kind="stable")
    drawn = np.concatenate([np.ones((1, len(problems))), counts(len(problems), resamples, seed)])[:, owner[order]]
    seen = np.cumsum(drawn, axis=1)
    right = np.cumsum(drawn * rows[order, 0], axis=1)
    out = np.empty((len(drawn), points))
    for i in range(len(drawn)):
        wanted = seen[i, -1] * np.arange(1, points + 1) / points
        at = np.minimum(np.searchsorted(seen[i], wanted - 1e-9), len(owner) - 1)
        out[i] = right[i, at] / np.maximum(seen[i, at], 1.0)
    return out


def _at(coverage: float, points: int) -> int:
    return min(points - 1, max(0, round(coverage * points) - 1))


def _metric(values: np.ndarray, n: int, level: float) -> Metric:
    """The first value is the estimate, the others are redraws."""
    if not n:
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": 0}
    low, high = np.quantile(values[1:], [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(values[0]), "low": float(min(low, values[0])), "high": float(max(high, values[0])), "n": n}
