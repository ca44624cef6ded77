"""The cost of a right answer: tool calls and tokens per correct answer.

Ratio of sums with a bootstrap over problems: Efron and Tibshirani 1993, "An Introduction to the Bootstrap".

    tokens_per_right = (tokens of all samples, right and wrong) / (number of right samples)

so that a model that guesses often and cheaply and one that answers seldom and long can be compared. Input: per problem
its scores, calls and tokens. Right means score >= threshold. NaN if nothing was right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, of_sums, scored_samples


def cost_per_right(
    scored: Sequence[Sequence[float]],
    calls: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[float]],
    *,
    threshold: float = 0.999,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    rows = [(sum(x >= threshold for x in s), sum(c), sum(t)) for s, c, t in scored_samples(scored, calls, tokens)]
    parts = np.array(rows, dtype=np.float64).reshape(-1, 3)

    def ratio(column: int) -> Metric:
        def statistic(sums: np.ndarray) -> np.ndarray:
            right = sums[:, 0]
            return np.where(right > 0, sums[:, column] / np.maximum(right, 1.0), np.nan)

        return of_sums(parts, statistic, level=level, resamples=resamples, seed=seed)

    return {"calls_per_right": ratio(1), "tokens_per_right": ratio(2)}
