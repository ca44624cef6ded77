"""The mean of a quantity per sample: score, tool calls, tokens.

Bootstrap over problems: Efron 1979, "Bootstrap Methods: Another Look at the Jackknife".

    mean over problems of (mean over the problem's samples)

Input: per problem the values of its samples, NaN left out. Returns {name: {"mean", "low", "high", "n"}}. Every problem
weighs the same, however many samples it has.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.metrics import Metric, interval, scorable


def mean(
    scored: Sequence[Sequence[float]], *, name: str = "score", level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, Metric]:
    means = [x.mean() for x in map(scorable, scored) if len(x)]
    return {name: interval(means, level=level, resamples=resamples, seed=seed)}
