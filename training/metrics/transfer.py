"""Transfer between domains: the effect of training on domain a on the problems of domain b.

The matrix of "Can One Domain Help Others? A Data-Centric Study on Multi-Domain Reasoning via Reinforcement Learning"
(2025) and of "Beyond English-Centric Training" (arXiv 2509.23657), where domains are languages.

    a->b       mean over problems of domain b of (mean score of the model trained on a  -  of the model before, trained
               on "")
    own        mean of the diagonal: gain where it was trained          others   mean off the diagonal
    ratio      others / own, the generalisation ratio: 1 for a model that treats all domains alike, 0 for one that only
               memorised

Input: per problem the scores of samples of several models; `trained`: what the model of each sample was trained on (""
before training), `tested`: the domain of the problem. The n of a matrix cell is its number of problems; the other
values resample all problems, within domains. Problems that lack a sample of the model before training are left out of
the gain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, interval, scored_samples


def transfer(
    scored: Sequence[Sequence[float]],
    trained: Sequence[Sequence[str]],
    tested: Sequence[Sequence[str]],
    *,
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> dict[str, Metric]:
    gains: dict[tuple[str, str], dict[int, float]] = {}
    domains: list[str] = []
    for i, (scores, models, kinds) in enumerate(scored_samples(scored, trained, tested)):
        domains.append(kinds[0])
        by_model = {m: [s for s, n in zip(scores, models, strict=True) if n == m] for m in sorted(set(models))}
        before = by_model.pop("", None)
        for model, values in by_model.items():
            if before:
                gains.setdefault((model, kinds[0]), {})[i] = float(np.mean(values) - np.mean(before))
    more = {"level": level, "resamples": resamples, "seed": seed}
    out = {f"{a}->{b}": interval(list(cell.values()), **more) for (a, b), cell in sorted(gains.items())}
    rng = np.random.default_rng(seed)
    groups = [np.array([i for i, d in enumerate(domains) if d == name]) for name in sorted(set(domains))]
    draws = [np.ones(len(domains))]
    for _ in range(resamples if domains else 0):
        times = np.zeros(len(domains))
        for group in groups:
            times += np.bincount(rng.choice(group, len(group)), minlength=len(domains))
        draws.append(times)
    for name, column in zip(
        ("own", "others", "ratio"), np.array([_summary(gains, times) for times in draws]).T, strict=True
    ):
        out[name] = _metric(column, len(domains), level)
    return out


def _summary(gains: dict[tuple[str, str], dict[int, float]], times: np.ndarray) -> tuple[float, float, float]:
    cells = {}
    for at, values in gains.items():
        weight = np.array([times[i] for i in values])
        if weight.sum():
            cells[at] = float(np.dot(weight, list(values.values())) / weight.sum())
    own = [v for (a, b), v in cells.items() if a == b]
    others = [v for (a, b), v in cells.items() if a != b]
    nan = float("nan")
    mine, theirs = float(np.mean(own)) if own else nan, float(np.mean(others)) if others else nan
    return mine, theirs, theirs / mine if own and others and mine else nan


def _metric(values: np.ndarray, n: int, level: float) -> Metric:
    """The first value is the estimate, the others are redraws; a redraw without a value is left out."""
    value, rest = float(values[0]), values[1:][np.isfinite(values[1:])]
    if not np.isfinite(value) or not len(rest):
        return {"mean": float("nan"), "low": float("nan"), "high": float("nan"), "n": n}
    low, high = np.quantile(rest, [(1 - level) / 2, (1 + level) / 2])
    return {"mean": value, "low": float(min(low, value)), "high": float(max(high, value)), "n": n}
