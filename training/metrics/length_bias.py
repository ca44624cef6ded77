"""Does a score, or a reward model, use length as a proxy for quality?

Singhal et al. 2023, "A Long Way to Go: Investigating Length Correlations in RLHF" (arXiv 2310.03716).

    length_correlation   mean over problems of the correlation of score and tokens among its samples (problems where
                         both vary)
    length_gap           mean over problems of (mean tokens of right samples - of the others), tokens
    slope                pooled within problems: score gained per 100 tokens

Computed within problems, so that hard problems with long answers do not look like a bias. Input: per problem its scores
and tokens. n is the number of problems with any score; those without variation add 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.metrics import Metric, interval, of_sums, scored_samples


def length_bias(
    scored: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[float]],
    *,
    threshold: float = 0.999,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    problems = [
        (np.array(s, dtype=np.float64), np.array(t, dtype=np.float64)) for s, t in scored_samples(scored, tokens)
    ]
    more = {"level": level, "resamples": resamples, "seed": seed}
    correlations, gaps, parts = [], [], []
    for s, t in problems:
        ds, dt = s - s.mean(), t - t.mean()
        spread = float(np.sqrt((ds**2).sum() * (dt**2).sum()))
        correlations.append(float((ds * dt).sum()) / spread if spread > 0 else 0.0)
        right = s >= threshold
        gaps.append(float(t[right].mean() - t[~right].mean()) if right.any() and not right.all() else 0.0)
        parts.append((float((ds * dt).sum()), float((dt**2).sum())))
    slope = of_sums(
        np.array(parts).reshape(-1, 2),
        lambda x: np.where(x[:, 1] > 0, 100 * x[:, 0] / np.maximum(x[:, 1], 1e-12), 0.0),
        **more,
    )
    return {"length_correlation": interval(correlations, **more), "length_gap": interval(gaps, **more), "slope": slope}
