"""best-of-n: the score of the sample with the highest reward among n.

Stiennon et al. 2020, "Learning to summarize from human feedback" (arXiv 2009.01325); the estimator is that of Gao et
al. 2022, "Scaling Laws for Reward Model Overoptimization" (arXiv 2210.10760), appendix I.

    samples in falling order of reward, m of them:   best-of-n = sum_i score_i C(m - i, n - 1) / C(m, n),   i = 1 ... m

which is the mean over all subsets of n samples. Samples with equal rewards share: each is first equally often.
Input: per problem its sample scores and their rewards (NaN rewards are left out with the sample). Also returns
`bon_gap@n`, oracle best of n (pass@n of the scores in place of rewards) minus best-of-n: the gain that a perfect reward
model would add. Leaves out the KL budget that n corresponds to, ln n - (n - 1) / n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import comb

import numpy as np

from training.metrics import Metric, interval, scored_samples


def best_of_n(
    scored: Sequence[Sequence[float]],
    rewards: Sequence[Sequence[float]],
    *,
    ns: Sequence[int] = (2, 8),
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    problems = []
    for s, r in scored_samples(scored, rewards):
        known = [(a, b) for a, b in zip(s, r, strict=True) if b is not None and not math.isnan(b)]
        if known:
            problems.append((np.array([a for a, _ in known]), np.array([b for _, b in known])))
    out = {}
    for n in ns:
        enough = [(s, r) for s, r in problems if len(s) >= n]
        if enough or not problems:
            values = [expected(s, r, n) for s, r in enough]
            best = [expected(s, s, n) for s, _ in enough]
            out[f"best_of@{n}"] = interval(values, level=level, resamples=resamples, seed=seed, shares=True)
            out[f"bon_gap@{n}"] = interval(
                [b - v for b, v in zip(best, values, strict=True)], level=level, resamples=resamples, seed=seed
            )
    return out


def expected(scores: np.ndarray, rewards: np.ndarray, n: int) -> float:
    """Mean over all subsets of n samples of the score of the one with the largest reward, ties shared."""
    m = len(scores)
    order = np.argsort(-rewards, kind="stable")
    weight = np.array([comb(m - i, n - 1) / comb(m, n) for i in range(1, m + 1)])
    ranked = rewards[order]
    for value in np.unique(ranked):
        same = ranked == value
        weight[same] = weight[same].mean()
    return float((scores[order] * weight).sum())
