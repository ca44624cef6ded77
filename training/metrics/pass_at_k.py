"""pass@k: the chance that at least one of k samples is right.

Chen et al. 2021, "Evaluating Large Language Models Trained on Code" (arXiv 2107.03374).

    for a problem with c right among n samples:   pass@k = 1 - C(n - c, k) / C(n, k)

unbiased for any n >= k, unlike 1 - (1 - c/n)^k. Input: per problem its sample scores; right means score >= threshold;
NaN samples are not counted in n. Returns {"pass@k": {"mean", "low", "high", "n"}} for each k, the interval by bootstrap
over problems, by Clopper and Pearson where no problem, or every one, was ever solved. A problem
with fewer than k scorable samples says nothing about that k; a k for which no problem has enough is left out. Leaves
out the variance within a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from training.metrics import Metric, interval, scorable


def pass_at_k(
    scored: Sequence[Sequence[float]],
    *,
    ks: Sequence[int] = (1, 8),
    threshold: float = 0.999,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    counts = [(len(x), int((x >= threshold).sum())) for x in map(scorable, scored)]
    out = {}
    for k in ks:
        values = [1 - comb(n - c, k) / comb(n, k) for n, c in counts if n >= k]
        if values:
            out[f"pass@{k}"] = interval(values, level=level, resamples=resamples, seed=seed, shares=True)
    return out
