"""Metrics of scored samples, with intervals. One file per metric; they share `interval`, `of_sums` and `columns`.

The columns of samples that a metric may read, by name:

- `answers`: the model's final answer, "" if it gave none
- `references`: the reference answer, the same for all samples of a problem
- `texts`: everything that the model wrote
- `outcomes`: how the episode ended
- `calls`, `tokens`: of the whole conversation
- `confidences`: probability that the model gave its last turn, in [0, 1]
- `rewards`: rewards of a reward model
- `against`: scores of another model
- `features`: final hidden state at the prompt's end, None if it equals that of an earlier sample
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from training.metrics._tests import exact


class MetricPiece(Protocol):
    """Measures scored samples.

    Args:
        scored: per problem the scores of its samples, NaN where one could not be scored
        *columns: columns of the same samples in the same shape, by the names that the metric gives them
            (tasks/evaluation/measure.py lists them)

    Returns:
        name -> {mean, low, high, n}: the estimate, its 95 % interval and the number of problems used

    Check gives:
        scored: per problem the scores of its samples
        **columns: the columns that the metric reads

    Check expects:
        **metrics: `{mean, low, high, n}` of each metric by its name
    """

    def __call__(self, scored: Sequence[Sequence[float]], *columns: Sequence[Sequence[Any]]) -> dict[str, Metric]: ...


Metric = dict[str, float]


def half_width(values: np.ndarray, level: float = 0.95) -> np.ndarray:
    """[seeds, ...], two seeds or more -> [...]: half of Student's two-sided interval for the mean over seeds."""
    from scipy.special import stdtrit

    n = len(values)
    return stdtrit(n - 1, (1 + level) / 2) * values.std(0, ddof=1) / math.sqrt(n)


def interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 2000, seed: int = 0, shares: bool = False
) -> Metric:
    """Mean of one value per problem, and its percentile bootstrap interval over problems (Efron 1979).

    The bootstrap resamples problems, not samples, because the samples of one problem are not independent. NaN values
    are left out. shares: values lie in [0, 1]. If all are 0, or all are 1, every resample is the same and the bootstrap
    would claim certainty; the interval is then that of Clopper and Pearson for none, or all, of n problems. Returns
    {"mean", "low", "high", "n"}; n problems. NaN throughout where there is none.
    """
    x = np.asarray(values, dtype=np.float64)
    x = x[~np.isnan(x)]
    if not len(x):
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": 0}
    if shares and (np.all(x == 0.0) or np.all(x == 1.0)):
        low, high = exact(len(x), all_right=bool(x[0]), level=level)
        return {"mean": float(x[0]), "low": low, "high": high, "n": len(x)}
    rng = np.random.default_rng(seed)
    means = x[rng.integers(0, len(x), (resamples, len(x)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": float(x.mean()), "low": float(low), "high": float(high), "n": len(x)}


def scorable(samples: Sequence[float]) -> np.ndarray:
    """The samples of one problem that have a score (NaN marks the others)."""
    x = np.asarray(samples, dtype=np.float64)
    return x[~np.isnan(x)]


def of_sums(
    parts: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Metric:
    """A statistic of sums over problems (a ratio, a binned error), with the interval of redrawn problems.

    parts      [problems, d] the contribution of each problem
    statistic  [redraws, d] sums -> [redraws] values, NaN if undefined
    The interval is widened to include the estimate, because some statistics are biased (a binned error is).
    """
    x = np.asarray(parts, dtype=np.float64)
    if not len(x):
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": 0}
    value = float(statistic(x.sum(axis=0)[None])[0])
    draws = statistic(counts(len(x), resamples, seed) @ x)
    draws = draws[np.isfinite(draws)]
    if not np.isfinite(value) or not len(draws):
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": len(x)}
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": value, "low": float(min(low, value)), "high": float(max(high, value)), "n": len(x)}


def counts(n: int, resamples: int, seed: int) -> np.ndarray:
    """[resamples, n] how often each of n problems occurs when n are drawn with replacement."""
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1.0 / n), size=resamples).astype(np.float64)


def columns(metric: Callable) -> tuple[str, ...]:
    """The columns of samples that a metric reads besides the scores: its positional arguments after the first."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in inspect.signature(metric).parameters.values() if p.kind in kinds)[1:]


def scored_samples(scored: Sequence[Sequence[float]], *others: Sequence[Sequence]) -> list[tuple[list, ...]]:
    """Per problem with any score: its scores and the other columns, without the samples that have no score."""
    out = []
    for scores, *rest in zip(scored, *others, strict=True):
        keep = [i for i, s in enumerate(scores) if s is not None and not math.isnan(s)]
        if keep:
            out.append(tuple([column[i] for i in keep] for column in (scores, *rest)))
    return out
